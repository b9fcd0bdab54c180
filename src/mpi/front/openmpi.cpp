// SPDX-License-Identifier: MIT
// What only Open MPI's library has.
#include "mpi/front/openmpi.hpp"

extern "C" {
#pragma GCC visibility push(default)

// Callbacks that are there already.
#define APLIB_CALLBACKS(prefix, Handle)                                                       \
  int OMPI_C_MPI_##prefix##NULL_COPY_FN(Handle, int, void*, void*, void*, int* flag) {        \
    *flag = 0;                                                                                \
    return MPI_SUCCESS;                                                                       \
  }                                                                                           \
  int OMPI_C_MPI_##prefix##DUP_FN(Handle, int, void*, void* value, void* copied, int* flag) { \
    *static_cast<void**>(copied) = value;                                                     \
    *flag = 1;                                                                                \
    return MPI_SUCCESS;                                                                       \
  }                                                                                           \
  int OMPI_C_MPI_##prefix##NULL_DELETE_FN(Handle, int, void*, void*) { return MPI_SUCCESS; }
APLIB_CALLBACKS(, MPI_Comm)
APLIB_CALLBACKS(COMM_, MPI_Comm)
APLIB_CALLBACKS(TYPE_, MPI_Datatype)
APLIB_CALLBACKS(WIN_, MPI_Win)

int MPIX_Query_cuda_support() { return 0; }

#pragma GCC visibility pop
}
