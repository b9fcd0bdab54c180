/* SPDX-License-Identifier: MIT */
/* Programs for the mpi.h of another MPI that check what MPI answers, on any number of ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int errors, rank, size;

#define CHECK(what)                                                    \
  do {                                                                 \
    if (!(what)) {                                                     \
      printf("rank %d, %s:%d: %s\n", rank, __FILE__, __LINE__, #what); \
      ++errors;                                                        \
    }                                                                  \
  } while (0)

static void start(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static int finish(void) {
  int all = 0;
  MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) printf("No Errors\n");
  MPI_Finalize();
  return errors != 0;
}
