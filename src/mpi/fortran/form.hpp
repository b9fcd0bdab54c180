// SPDX-License-Identifier: MIT
// What Fortran's layer has of one binary interface. Here: of the standard's. form_openmpi.hpp has the same names.
//
//   handle_of<Handle>(number)   a handle as Fortran has it, and back. What the library gives to a caller of operations
//   number_of(handle)           or error handlers has the standard's form, which number_of() takes, too
//   Length                      of a string, as programs pass it
//   is_bottom(address), ...     the variables in the common blocks of mpif.h, of which only the addresses matter
//   in_place, ...               C's addresses of what is absent
//   keyval, topology, code_of   numbers that mean something, by the standard's; standard_code_of the other way
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "mpi/handles.hpp"

extern "C" {
#pragma GCC visibility push(default)
/// The common block APLIB_MPI of mpif.h. Only addresses matter.
extern struct Absent {
  int bottom, in_place, buffer_automatic;
  int errcodes_ignore, unweighted, weights_empty;
  std::array<int, 8> status_ignore, statuses_ignore;
} aplib_mpi_;
/// The common block APLIB_MPI_TEXT.
extern struct AbsentText {
  char argv_null, argvs_null;
} aplib_mpi_text_;
#pragma GCC visibility pop
}

/// A subroutine of Fortran, PMPI_NAME, which is MPI_NAME too unless a tool defines that. Within extern "C".
#define APLIB_SUBROUTINE(name, parameters)                                    \
  [[gnu::weak, gnu::alias("pmpi_" #name "_")]] void mpi_##name##_ parameters; \
  void pmpi_##name##_ parameters

/// A persistent collective call, which some have by another name, too.
#define APLIB_PERSISTENT(name, parameters)

namespace aplib::mpi::fortran {

using Length = std::size_t;

inline constexpr int predefined_end = 4096;

template <class Handle>
Handle handle_of(int number) {
  if (number >= 0 && number < predefined_end) [[likely]]
    return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(number));
  return static_cast<Handle>(aplib_mpi_handle(number));
}

template <class Handle>
int number_of(Handle handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  return value < predefined_end ? static_cast<int>(value) : aplib_mpi_number(handle);
}

inline bool is_bottom(const void* address) noexcept { return address == &aplib_mpi_.bottom; }
inline bool is_in_place(const void* address) noexcept { return address == &aplib_mpi_.in_place; }
inline bool is_automatic(const void* address) noexcept { return address == &aplib_mpi_.buffer_automatic; }
inline bool is_no_status(const void* address) noexcept {
  return address == &aplib_mpi_.status_ignore || address == &aplib_mpi_.statuses_ignore;
}
inline bool is_unweighted(const void* address) noexcept { return address == &aplib_mpi_.unweighted; }
inline bool is_weights_empty(const void* address) noexcept { return address == &aplib_mpi_.weights_empty; }
inline bool is_no_errcodes(const void* address) noexcept { return address == &aplib_mpi_.errcodes_ignore; }
inline bool is_no_argv(const void* address) noexcept {
  return address == &aplib_mpi_text_.argv_null || address == &aplib_mpi_text_.argvs_null;
}

inline void* const in_place = MPI_IN_PLACE;
inline int* const unweighted = MPI_UNWEIGHTED;
inline int* const weights_empty = MPI_WEIGHTS_EMPTY;

constexpr int keyval(int standard) noexcept { return standard; }
constexpr int topology(int standard) noexcept { return standard; }
constexpr int code_of(int standard) noexcept { return standard; }
constexpr int standard_code_of(int code) noexcept { return code; }

}  // namespace aplib::mpi::fortran
