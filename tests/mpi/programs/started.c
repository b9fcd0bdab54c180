/* SPDX-License-Identifier: MIT */
/* Says how its rank was started. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, size, found, length = 16, *number;
  char ranks[16], folder[4096];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &found);
  MPI_Info_get_string(MPI_INFO_ENV, "maxprocs", &length, ranks, &found);
  const char* const colour = getenv("COLOUR");
  printf("%d of %d: program %d of %s, %s, %s in %s\n", rank, size, *number, ranks, argc > 1 ? argv[1] : "-",
         colour != NULL ? colour : "-", strrchr(getcwd(folder, sizeof folder), '/') + 1);
  MPI_Finalize();
  return 0;
}
