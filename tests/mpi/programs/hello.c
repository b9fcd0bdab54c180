/* SPDX-License-Identifier: MIT */
/* Each rank says who it is, and ends. Its globals and its MPI are its own. With an argument it makes an error. */
#include <mpi.h>
#include <stdio.h>

static int calls;

static void count(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  (void)code;
  ++calls;
}

int main(int argc, char** argv) {
  int rank, size, i;
  MPI_Errhandler handler;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1) MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER);
  MPI_Comm_create_errhandler(count, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  for (i = 0; i <= rank; ++i) MPI_Comm_size(MPI_COMM_WORLD, NULL);
  printf("rank %d of %d, %d errors\n", rank, size, calls);
  MPI_Finalize();
  return 0;
}
