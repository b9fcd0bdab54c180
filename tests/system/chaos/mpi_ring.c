/* SPDX-License-Identifier: MIT */
/* As ring.c, for ever, by MPI, with ranks that may be ordinary processes. */
#include <mpi.h>
#include <stdio.h>

int main(void) {
  int mine, ranks;
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &mine);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  const int right = (mine + 1) % ranks, left = (mine + ranks - 1) % ranks;
  if (mine == 0) puts("all run");
  for (long round = 0;; ++round) {
    if (mine == 0 && round > 0 && (round & (round - 1)) == 0) printf("round %ld\n", round);
    fflush(stdout);
    const long sent = round * ranks + mine;
    long got = -1;
    MPI_Sendrecv(&sent, 1, MPI_LONG, right, 1, &got, 1, MPI_LONG, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (got != round * ranks + left) MPI_Abort(MPI_COMM_WORLD, 9);
  }
}
