/* SPDX-License-Identifier: MIT */
/* What instructions.py counts of MPI: `counted_mpi OPERATION TIMES`, on two ranks of one thread. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, other;
static long word;

static void send_receive(void) {
  if (rank == 0) MPI_Send(&word, 1, MPI_LONG, other, 1, MPI_COMM_WORLD);
  MPI_Recv(&word, 1, MPI_LONG, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank != 0) MPI_Send(&word, 1, MPI_LONG, other, 1, MPI_COMM_WORLD);
}

static void isend_wait(void) {
  MPI_Request both[2];
  long sent = 1;
  MPI_Irecv(&word, 1, MPI_LONG, other, 1, MPI_COMM_WORLD, &both[0]);
  MPI_Isend(&sent, 1, MPI_LONG, other, 1, MPI_COMM_WORLD, &both[1]);
  MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
}

static void allreduce(void) {
  long sum;
  MPI_Allreduce(&word, &sum, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
}

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static MPI_Request open_request = MPI_REQUEST_NULL;

static void test(void) {
  int done;
  MPI_Test(&open_request, &done, MPI_STATUS_IGNORE);
}

static void nothing(void) {}

static const struct {
  const char* name;
  void (*once)(void);
} operations[] = {{"mpi-send", send_receive}, {"mpi-isend", isend_wait}, {"mpi-allreduce", allreduce},
                  {"mpi-barrier", barrier},   {"mpi-test", test},        {"instance", nothing}};

int main(int count, char** words) {
  void (*once)(void) = NULL;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  other = 1 - rank;
  for (unsigned i = 0; count == 3 && i < sizeof operations / sizeof operations[0]; ++i) {
    if (strcmp(operations[i].name, words[1]) == 0) once = operations[i].once;
  }
  if (once == NULL) {
    fprintf(stderr, "usage: counted_mpi OPERATION TIMES\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (once == test) MPI_Irecv(&word, 1, MPI_LONG, other, 2, MPI_COMM_WORLD, &open_request);
  for (long left = strtol(words[2], NULL, 10); left > 0; --left) once();
  if (once == test) {
    MPI_Send(&word, 1, MPI_LONG, other, 2, MPI_COMM_WORLD);
    MPI_Wait(&open_request, MPI_STATUS_IGNORE);
  }
  MPI_Finalize();
  return 0;
}
