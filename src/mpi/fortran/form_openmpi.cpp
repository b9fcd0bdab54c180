// SPDX-License-Identifier: MIT
#include "mpi/fortran/form_openmpi.hpp"

#include <algorithm>

extern "C" {
#pragma GCC visibility push(default)
// Open MPI's library for mpi_f08 calls them, too.
MPI_Aint pmpi_aint_add_(const MPI_Aint* base, const MPI_Aint* disp);
MPI_Aint pmpi_aint_diff_(const MPI_Aint* one, const MPI_Aint* other);
MPI_Aint ompi_aint_add_f(const MPI_Aint* base, const MPI_Aint* disp) { return pmpi_aint_add_(base, disp); }
MPI_Aint ompi_aint_diff_f(const MPI_Aint* one, const MPI_Aint* other) { return pmpi_aint_diff_(one, other); }
void ompi_f_sync_reg_f(void*) {}

// Of version 5. Statuses of Fortran 2008 are the same bytes.
#define APLIB_SAME_STATUS(name)                                     \
  APLIB_SUBROUTINE(name, (const int* from, int* to, int* ierror)) { \
    std::copy_n(from, 6, to);                                       \
    *ierror = MPI_SUCCESS;                                          \
  }
APLIB_SAME_STATUS(status_f082f)
APLIB_SAME_STATUS(status_f2f08)

// The library of C says by name that they are missing.
#define APLIB_MISSING(name, c_name, parameters)                      \
  int PMPIX_##c_name();                                              \
  void pmpix_##name##_ parameters { *ierror = PMPIX_##c_name(); }    \
  [[gnu::alias("pmpix_" #name "_")]] void mpix_##name##_ parameters; \
  [[gnu::alias("pmpix_" #name "_")]] void ompix_##name##_f parameters;
APLIB_MISSING(comm_ack_failed, Comm_ack_failed, (int*, int*, int*, int* ierror))
APLIB_MISSING(comm_agree, Comm_agree, (int*, int*, int* ierror))
APLIB_MISSING(comm_failure_ack, Comm_failure_ack, (int*, int* ierror))
APLIB_MISSING(comm_failure_get_acked, Comm_failure_get_acked, (int*, int*, int* ierror))
APLIB_MISSING(comm_get_failed, Comm_get_failed, (int*, int*, int* ierror))
APLIB_MISSING(comm_iagree, Comm_iagree, (int*, int*, int*, int* ierror))
APLIB_MISSING(comm_is_revoked, Comm_is_revoked, (int*, int*, int* ierror))
APLIB_MISSING(comm_ishrink, Comm_ishrink, (int*, int*, int*, int* ierror))
APLIB_MISSING(comm_revoke, Comm_revoke, (int*, int* ierror))
APLIB_MISSING(comm_shrink, Comm_shrink, (int*, int*, int* ierror))

// What mpif.h makes of MPI_Sizeof: a subroutine for each kind and number of dimensions.
#define APLIB_SIZEOF_SHAPE(kind, shape)                                                                  \
  [[gnu::alias("mpi_sizeof_" #kind "_scalar_")]] void mpi_sizeof_##kind##_##shape##_(void*, int*, int*); \
  [[gnu::alias("mpi_sizeof_" #kind "_scalar_")]] void pmpi_sizeof_##kind##_##shape##_(void*, int*, int*);
#define APLIB_SIZEOF(kind, bytes)                                                                      \
  void mpi_sizeof_##kind##_scalar_(void*, int* size, int* ierror) {                                    \
    *size = bytes;                                                                                     \
    *ierror = MPI_SUCCESS;                                                                             \
  }                                                                                                    \
  [[gnu::alias("mpi_sizeof_" #kind "_scalar_")]] void pmpi_sizeof_##kind##_scalar_(void*, int*, int*); \
  APLIB_SIZEOF_SHAPE(kind, r1)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r2)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r3)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r4)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r5)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r6)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r7)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r8)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r9)                                                                         \
  APLIB_SIZEOF_SHAPE(kind, r10)                                                                        \
  APLIB_SIZEOF_SHAPE(kind, r11)                                                                        \
  APLIB_SIZEOF_SHAPE(kind, r12)                                                                        \
  APLIB_SIZEOF_SHAPE(kind, r13)                                                                        \
  APLIB_SIZEOF_SHAPE(kind, r14)                                                                        \
  APLIB_SIZEOF_SHAPE(kind, r15)
APLIB_SIZEOF(character, 1)
APLIB_SIZEOF(complex32, 8)
APLIB_SIZEOF(complex64, 16)
APLIB_SIZEOF(complex128, 32)
APLIB_SIZEOF(int8, 1)
APLIB_SIZEOF(int16, 2)
APLIB_SIZEOF(int32, 4)
APLIB_SIZEOF(int64, 8)
APLIB_SIZEOF(logical, 4)
APLIB_SIZEOF(real32, 4)
APLIB_SIZEOF(real64, 8)
APLIB_SIZEOF(real128, 16)
#pragma GCC visibility pop
}
