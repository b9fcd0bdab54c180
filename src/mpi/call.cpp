// SPDX-License-Identifier: MIT
#include "mpi/call.hpp"

#include <fmt/format.h>

#include "kernel/api.hpp"
#include "mpi/rank.hpp"

namespace aplib::mpi {

void Call::enter(When when) {
  rank_ = static_cast<Rank*>(api::mpi_rank(name_));
  if (rank_ == nullptr || rank_->phase != Rank::Phase::initialized) [[unlikely]]
    enter_otherwise(when);
}

void Call::enter_otherwise(When when) {
  rank_ = &Rank::of_caller(name_);
  if (when == any_time) return;
  if (rank_->phase == Rank::Phase::before) fail(MPI_ERR_OTHER, "it came before MPI_Init; call MPI_Init first");
  fail(MPI_ERR_OTHER, "it came after MPI_Finalize; make MPI_Finalize the program's last call of MPI");
}

void fail_null(const char* parameter) {
  fail(MPI_ERR_ARG, fmt::format("{} is a null pointer; give the address of a place for it", parameter));
}

void fail_count(const char* parameter, MPI_Count value) {
  fail(MPI_ERR_COUNT, fmt::format("{} is {}; a count is 0 or more", parameter, value));
}

void fail_size(const char* parameter, MPI_Aint value) {
  fail(MPI_ERR_SIZE, fmt::format("{} is {}; a size is 0 or more", parameter, value));
}

void fail_length(const char* parameter, int value) {
  fail(MPI_ERR_ARG, fmt::format("{} is {}; the length of an array is 0 or more", parameter, value));
}

}  // namespace aplib::mpi
