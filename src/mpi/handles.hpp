// SPDX-License-Identifier: MIT
// What libmpifort_abi and the front ends of other ABIs ask of this library beside MPI's functions. They are of the same
// build, and nobody else's.
#pragma once

#include <mpi.h>

extern "C" {
#pragma GCC visibility push(default)

/// The handle of this number; null: none has it. As MPI_..._fromint, which would raise an error.
void* aplib_mpi_handle(int number);
/// The number of a handle that MPI has given, as of MPI_..._toint.
int aplib_mpi_number(const void* handle);
/// Who calls a program's function that takes handles in another form than this ABI's. `length` fits into an int, unless
/// the operation was made by MPI_Op_create_c.
using AplibMpiOpCaller = void(void (*function)(), void* in, void* inout, MPI_Count length, MPI_Datatype datatype);
using AplibMpiErrorCaller = void(void (*function)(), void** object, int* code, const char* text);
/// `caller` calls the function of `op`, which the program has made. Not null: another `function` in its place.
void aplib_mpi_call_op_by(MPI_Op op, AplibMpiOpCaller* caller, void (*function)() = nullptr);
/// The same of an error handler.
void aplib_mpi_call_errhandler_by(MPI_Errhandler errhandler, AplibMpiErrorCaller* caller);
/// Raises an error on MPI_COMM_SELF; returns its code.
int aplib_mpi_raise(const char* call, int code, const char* text);

#pragma GCC visibility pop
}
