// SPDX-License-Identifier: MIT
#include "mpi/fortran/form_openmpi.hpp"

extern "C" {
#pragma GCC visibility push(default)
int mpi_fortran_bottom_, mpi_fortran_in_place_, mpi_fortran_errcodes_ignore_, mpi_fortran_unweighted_,
    mpi_fortran_weights_empty_, mpi_fortran_status_ignore_[6], mpi_fortran_statuses_ignore_[6];
char mpi_fortran_argv_null_, mpi_fortran_argvs_null_;

// Open MPI's library for mpi_f08 calls them, too.
MPI_Aint pmpi_aint_add_(const MPI_Aint* base, const MPI_Aint* disp);
MPI_Aint pmpi_aint_diff_(const MPI_Aint* one, const MPI_Aint* other);
MPI_Aint ompi_aint_add_f(const MPI_Aint* base, const MPI_Aint* disp) { return pmpi_aint_add_(base, disp); }
MPI_Aint ompi_aint_diff_f(const MPI_Aint* one, const MPI_Aint* other) { return pmpi_aint_diff_(one, other); }
void ompi_f_sync_reg_f(void*) {}
#pragma GCC visibility pop
}
