/* SPDX-License-Identifier: MIT */
/* Calls of MPI in parallel regions, one at a time. Prints "No Errors" on rank 0. */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size, provided = -1, errors = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided < MPI_THREAD_SERIALIZED) errors = 1000;
  for (int round = 0; round < 50; ++round) {
    int sum = 0, around = 0;
#pragma omp parallel num_threads(3) reduction(+ : around)
    {
#pragma omp single
      MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
#pragma omp critical
      {
        int got = -1;
        MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        around += got;
      }
#pragma omp barrier
#pragma omp master
      MPI_Barrier(MPI_COMM_WORLD);
    }
    if (sum != size * (size - 1) / 2 || around != 3 * ((rank + size - 1) % size)) ++errors;
  }
  int all = 0;
  MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf(all == 0 ? "No Errors\n" : "%d errors\n", all);
  MPI_Finalize();
  return 0;
}
