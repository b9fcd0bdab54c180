// SPDX-License-Identifier: MIT
// What a program can ask about the library and its ABI: versions, sizes, what Fortran's side has told, and handles as
// numbers.
#include <fmt/format.h>

#include <cstring>

#include "aplib/version.hpp"
#include "mpi/error.hpp"
#include "mpi/info.hpp"
#include "mpi/op.hpp"
#include "mpi/rank.hpp"

namespace aplib::mpi {

void get_version(const Call&, int* version, int* subversion) {
  *version = MPI_VERSION;
  *subversion = MPI_SUBVERSION;
}

void get_library_version(const Call&, char* text, int* length) {
  give_string(fmt::format("APlib {} (MPI {}.{}, standard ABI {}.{})", aplib::version, MPI_VERSION, MPI_SUBVERSION,
                          MPI_ABI_VERSION, MPI_ABI_SUBVERSION),
              text, MPI_MAX_LIBRARY_VERSION_STRING, length);
}

void abi_get_version(const Call&, int* major, int* minor) {
  *major = MPI_ABI_VERSION;
  *minor = MPI_ABI_SUBVERSION;
}

void abi_get_info(const Call& call, MPI_Info* place) {
  auto* const info = new Info(call.rank());
  info->set("mpi_aint_size", std::to_string(sizeof(MPI_Aint)));
  info->set("mpi_count_size", std::to_string(sizeof(MPI_Count)));
  info->set("mpi_offset_size", std::to_string(sizeof(MPI_Offset)));
  *place = handle_of<MPI_Info>(*info);
}

// ---------------------------------------------------------------- Fortran

void abi_set_fortran_info(const Call& call, Info& info) {
  Rank& rank = call.rank();
  if (rank.fortran != nullptr)
    fail(MPI_ERR_ABI, "the sizes of Fortran's types are set already; only the first set counts");
  rank.fortran = new Info(rank, info);
}

void abi_get_fortran_info(const Call& call, MPI_Info* place) {
  Rank& rank = call.rank();
  *place = rank.fortran == nullptr ? MPI_INFO_NULL : handle_of<MPI_Info>(*new Info(rank, *rank.fortran));
}

namespace {

void check_logical_size(int size) {
  if (size == 1 || size == 2 || size == 4 || size == 8 || size == 16) return;
  fail(MPI_ERR_ARG, fmt::format("logical_size is {}; a LOGICAL of Fortran has 1, 2, 4, 8 or 16 bytes", size));
}

}  // namespace

void abi_set_fortran_booleans(const Call& call, int size, void* is_true, void* is_false) {
  check_logical_size(size);
  check_place(call, "logical_true", is_true);
  check_place(call, "logical_false", is_false);
  const auto bytes = [size](const void* from) {
    return std::string(static_cast<const char*>(from), static_cast<std::size_t>(size));
  };
  if (!call.rank().fortran_booleans.try_emplace(size, Rank::Booleans{bytes(is_true), bytes(is_false)}).second)
    fail(MPI_ERR_ABI,
         fmt::format("the values of a LOGICAL of {} bytes are set already; only the first set counts", size));
}

void abi_get_fortran_booleans(const Call& call, int size, void* is_true, void* is_false, int* is_set) {
  check_logical_size(size);
  check_place(call, "logical_true", is_true);
  check_place(call, "logical_false", is_false);
  const auto known = call.rank().fortran_booleans.find(size);
  *is_set = known != call.rank().fortran_booleans.end() ? 1 : 0;
  if (*is_set == 0) return;
  std::memcpy(is_true, known->second.is_true.data(), known->second.is_true.size());
  std::memcpy(is_false, known->second.is_false.data(), known->second.is_false.size());
}

// ---------------------------------------------------------------- handles as numbers

int to_int(const Call& call, const void* handle) { return call.rank().number_of(handle); }

void* from_int(const Call& call, int number) {
  void* const handle = call.rank().handle_of_number(number);
  if (handle == nullptr && number != 0)
    fail(MPI_ERR_ARG, fmt::format("no handle has the number {}; give one that MPI_..._toint gave, of an object that "
                                  "was not freed",
                                  number));
  return handle;
}

}  // namespace aplib::mpi
