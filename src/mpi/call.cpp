// SPDX-License-Identifier: MIT
#include "mpi/call.hpp"

#include <fmt/format.h>

#include "kernel/api.hpp"
#include "kernel/program_threads.hpp"
#include "mpi/rank.hpp"

namespace aplib::mpi {

void Call::enter(When when) {
  rank_ = static_cast<Rank*>(api::mpi_rank_of_task());
  if (rank_ == nullptr || rank_->phase != Rank::Phase::initialized) [[unlikely]]
    enter_otherwise(when);
}

void Call::look() {
  rank_ = static_cast<Rank*>(api::mpi_rank_of_thread());
  if (rank_ == nullptr && this_task::inside()) rank_ = &Rank::of_caller(name_);
}

namespace {

/// Why a thread of the program may not call.
std::string refusal(const Rank* rank) {
  if (rank == nullptr || rank->seen_phase() == Rank::Phase::before)
    return "it came from a thread before MPI_Init; call MPI_Init on the program's main thread first, or "
           "MPI_Init_thread on this one, and give each rank a thread of its own (--threads per-cell or "
           "APLIB_THREADS=per-cell)";
  if (rank->seen_phase() == Rank::Phase::finalized) return "it came after MPI_Finalize; end threads that call before";
  if (rank->thread_level >= MPI_THREAD_SERIALIZED)
    return "it came from a thread that was made in a function which MPI had called, or by a library that was loaded "
           "later (dlopen); make threads elsewhere, or give each rank a thread of its own (--threads per-cell or "
           "APLIB_THREADS=per-cell)";
  return fmt::format(
      "it came from a thread that the program made, and MPI_Init{} has provided {}; ask MPI_Init_thread "
      "for MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, and give each rank a thread of its own "
      "(--threads per-cell or APLIB_THREADS=per-cell); a program that cannot be changed runs as processes "
      "(--processes)",
      rank->thread_level == MPI_THREAD_SINGLE ? "" : "_thread",
      rank->thread_level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED");
}

}  // namespace

void Call::enter_otherwise(When when) {
  const auto [entry, kept] = api::visit_cell();
  auto* const rank = static_cast<Rank*>(kept);
  visits_ = entry == api::Entry::entered;
  const bool is_initialized = visits_ && rank != nullptr && rank->phase == Rank::Phase::initialized;
  if (is_initialized && (rank->threads_may_call() || rank->is_main_thread())) {
    rank_ = rank;
    return;
  }
  if (entry == api::Entry::too_late && rank != nullptr && rank->seen_phase() == Rank::Phase::finalized)
    fail_after_finalize();
  if (entry == api::Entry::too_late)
    fail(MPI_ERR_OTHER, "it came from a thread, and the main part of the program has ended; join threads before");
  if (entry == api::Entry::refused && api::is_thread_of_program()) fail(MPI_ERR_OTHER, refusal(rank));
  try {
    if (is_initialized && when != any_time) fail(MPI_ERR_OTHER, refusal(rank));  // a thread that may not call
    enter_phase(when);
  } catch (...) {
    if (visits_) leave();
    throw;
  }
}

void Call::leave() const noexcept { api::leave_cell(); }

void Call::enter_phase(When when) {
  rank_ = &Rank::of_caller(name_);
  if (when == any_time) return;
  if (rank_->phase == Rank::Phase::before) fail_before_init();
  if (rank_->phase == Rank::Phase::finalized) fail_after_finalize();
}

void fail_before_init() { fail(MPI_ERR_OTHER, "it came before MPI_Init; call MPI_Init first"); }

void fail_after_finalize() {
  fail(MPI_ERR_OTHER, "it came after MPI_Finalize; make MPI_Finalize the program's last call of MPI");
}

void fail_null(const char* parameter) {
  fail(MPI_ERR_ARG, fmt::format("{} is a null pointer; give the address of a place for it", parameter));
}

void fail_buffer(const char* parameter, const void* buffer) {
  fail(MPI_ERR_BUFFER, fmt::format("{} is {}", parameter,
                                   buffer == MPI_IN_PLACE ? "MPI_IN_PLACE, which is not allowed for it here"
                                                          : "a null pointer; give the address of the data"));
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
