/* SPDX-License-Identifier: MIT */
/* Chooses an MPI as it runs, as mpi4py does: whatever libmpi.so is, it finds out what that has. */
#include <dlfcn.h>
#include <stdio.h>

typedef int Function();

int main(int argc, char** argv) {
  void* const library = dlopen(argc > 1 ? argv[1] : "libmpi.so", RTLD_LAZY);
  int major = 0, minor = 0, rank = -1, sum = -1;
  if (library == NULL) return puts(dlerror()), 1;
  ((Function*)dlsym(library, "MPI_Abi_get_version"))(&major, &minor);
  if (major != -1 || minor != -1 || dlsym(library, "ompi_mpi_comm_world") != NULL) return puts("not MPICH's"), 1;
  ((Function*)dlsym(library, "MPI_Init"))(NULL, NULL);
  ((Function*)dlsym(library, "MPI_Comm_rank"))(0x44000000, &rank);
  ((Function*)dlsym(library, "MPI_Allreduce"))(&rank, &sum, 1, 0x4c000405, 0x58000003, 0x44000000);
  printf("%d\n", sum);
  return ((Function*)dlsym(library, "MPI_Finalize"))();
}
