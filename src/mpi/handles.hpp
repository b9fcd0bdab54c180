// SPDX-License-Identifier: MIT
// What libmpifort_abi asks of this library beside MPI's functions. It is of the same build, and nobody else's.
#pragma once

extern "C" {
#pragma GCC visibility push(default)

/// The handle of this number; null: none has it. As MPI_..._fromint, which would raise an error.
void* aplib_mpi_handle(int number);
/// The number of a handle that MPI has given, as of MPI_..._toint.
int aplib_mpi_number(const void* handle);
/// The function of `handle`, an operation or an error handler, is one of Fortran: it takes numbers for handles.
void aplib_mpi_calls_fortran(void* handle);
/// Raises an error on MPI_COMM_SELF; returns its code.
int aplib_mpi_raise(const char* call, int code, const char* text);

#pragma GCC visibility pop
}
