// SPDX-License-Identifier: MIT
// form.hpp for programs of Open MPI: libmpi_mpifh.so.40. What it calls are the functions of libmpi.so.40, our front
// end: constants, statuses and handles are Open MPI's. Handles are pointers there, too, so that the standard's header
// has the right declarations.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include <front_values.hpp>

#include "mpi/handles.hpp"

// Open MPI's library for mpi_f08, which programs have from there, calls the third.
#define APLIB_SUBROUTINE(name, parameters)                                      \
  [[gnu::weak, gnu::alias("pmpi_" #name "_")]] void mpi_##name##_ parameters;   \
  [[gnu::weak, gnu::alias("pmpi_" #name "_")]] void ompi_##name##_f parameters; \
  void pmpi_##name##_ parameters

// Open MPI 4 has them by these names.
#define APLIB_PERSISTENT(name, parameters)                           \
  [[gnu::alias("pmpi_" #name "_")]] void mpix_##name##_ parameters;  \
  [[gnu::alias("pmpi_" #name "_")]] void pmpix_##name##_ parameters; \
  [[gnu::alias("pmpi_" #name "_")]] void ompix_##name##_f parameters;

// The common blocks of mpif.h, of libmpi.so.40. Only addresses matter.
extern "C" {
#pragma GCC visibility push(default)
extern int mpi_fortran_bottom_, mpi_fortran_in_place_, mpi_fortran_errcodes_ignore_, mpi_fortran_unweighted_,
    mpi_fortran_weights_empty_, mpi_fortran_buffer_automatic_, mpi_fortran_status_ignore_[6],
    mpi_fortran_statuses_ignore_[6];
extern char mpi_fortran_argv_null_, mpi_fortran_argvs_null_;
#pragma GCC visibility pop
}

namespace aplib::mpi::fortran {

using Length = int;

template <class Handle>
Handle handle_of(int number);
#define APLIB_CONVERSIONS(Handle, name)         \
  extern "C" Handle PMPI_##name##_f2c(int);     \
  extern "C" int PMPI_##name##_c2f(Handle);     \
  template <>                                   \
  inline Handle handle_of<Handle>(int number) { \
    return PMPI_##name##_f2c(number);           \
  }                                             \
  inline int number_of(Handle handle) { return PMPI_##name##_c2f(handle); }
APLIB_CONVERSIONS(MPI_Comm, Comm)
APLIB_CONVERSIONS(MPI_Datatype, Type)
APLIB_CONVERSIONS(MPI_Errhandler, Errhandler)
APLIB_CONVERSIONS(MPI_File, File)
APLIB_CONVERSIONS(MPI_Group, Group)
APLIB_CONVERSIONS(MPI_Info, Info)
APLIB_CONVERSIONS(MPI_Message, Message)
APLIB_CONVERSIONS(MPI_Op, Op)
APLIB_CONVERSIONS(MPI_Request, Request)
APLIB_CONVERSIONS(MPI_Session, Session)
APLIB_CONVERSIONS(MPI_Win, Win)
inline int number_of(void* handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  return value < front::handles_end ? front::fortran_numbers[value] : aplib_mpi_number(handle);
}

inline bool is_bottom(const void* address) noexcept { return address == &mpi_fortran_bottom_; }
inline bool is_in_place(const void* address) noexcept { return address == &mpi_fortran_in_place_; }
inline bool is_automatic(const void* address) noexcept { return address == &mpi_fortran_buffer_automatic_; }
inline bool is_no_status(const void* address) noexcept {
  return address == mpi_fortran_status_ignore_ || address == mpi_fortran_statuses_ignore_;
}
inline bool is_unweighted(const void* address) noexcept { return address == &mpi_fortran_unweighted_; }
inline bool is_weights_empty(const void* address) noexcept { return address == &mpi_fortran_weights_empty_; }
inline bool is_no_errcodes(const void* address) noexcept { return address == &mpi_fortran_errcodes_ignore_; }
inline bool is_no_argv(const void* address) noexcept {
  return address == &mpi_fortran_argv_null_ || address == &mpi_fortran_argvs_null_;
}

inline void* const in_place = reinterpret_cast<void*>(std::uintptr_t{1});
inline int* const unweighted = reinterpret_cast<int*>(std::uintptr_t{2});
inline int* const weights_empty = reinterpret_cast<int*>(std::uintptr_t{3});

constexpr int keyval(int standard) noexcept { return static_cast<int>(front::foreign_keyval(standard)); }
constexpr int topology(int standard) noexcept { return static_cast<int>(front::foreign_topology(standard)); }
constexpr int code_of(int standard) noexcept { return static_cast<int>(front::foreign_code(standard)); }
constexpr int standard_code_of(int code) noexcept { return static_cast<int>(front::standard_code(code)); }

}  // namespace aplib::mpi::fortran
