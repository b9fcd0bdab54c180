/* SPDX-License-Identifier: MIT */
/* What the programs share: how ranks meet, and who counts what was wrong. Rank 0 prints "No Errors". */
#pragma once
#include <mpi.h>
#include <stdio.h>

static int rank, ranks, errors;

static inline void begin(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static inline void check(int right, const char* what) {
  if (right) return;
  ++errors;
  printf("rank %d: %s\n", rank, what);
  fflush(stdout);
}

/* Others of the thread run meanwhile: a message goes around, or all wait for all. */
static inline void meet(int round) {
  int got = -1;
  if (round % 3 == 0) {
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  MPI_Sendrecv(&round, 1, MPI_INT, (rank + 1) % ranks, 7, &got, 1, MPI_INT, (rank + ranks - 1) % ranks, 7,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  check(got == round, "a neighbour's message");
}

static inline int end(void) {
  int all = 0;
  MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) puts("No Errors");
  MPI_Finalize();
  return all != 0;
}
