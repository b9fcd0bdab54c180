/* SPDX-License-Identifier: MIT */
/* A token goes round: all ranks but one wait. */
#include <mpi.h>

#include "patterns.h"

typedef void receiver(long* token, int from);

static void receive(long* token, int from) {
  MPI_Recv(token, 1, MPI_LONG, from, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void test(long* token, int from) {
  MPI_Request request;
  int there = 0;
  MPI_Irecv(token, 1, MPI_LONG, from, data_tag, MPI_COMM_WORLD, &request);
  while (!there) MPI_Test(&request, &there, MPI_STATUS_IGNORE);
}

static void probe(long* token, int from) {
  int there = 0;
  while (!there) MPI_Iprobe(MPI_ANY_SOURCE, data_tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  receive(token, from);
}

/* Each rank adds one to the token. */
static double ring(const struct figure* f, long count, receiver* take) {
  const struct world w = world();
  const int next = (w.rank + 1) % w.ranks;
  const int previous = (w.rank + w.ranks - 1) % w.ranks;
  double start = 0;
  long token = 0; /* rank 0 begins */
  for (long lap = 0; lap < warm_up(count) + count; ++lap) {
    if (lap == warm_up(count)) start = now_seconds();
    if (w.rank > 0) {
      take(&token, previous);
      demand(token == lap * w.ranks + w.rank, f);
    }
    ++token;
    MPI_Send(&token, 1, MPI_LONG, next, data_tag, MPI_COMM_WORLD);
    if (w.rank == 0) {
      take(&token, previous);
      demand(token == (lap + 1) * w.ranks, f);
    }
  }
  return now_seconds() - start;
}

double ring_by_recv(const struct figure* f, long count) { return ring(f, count, receive); }
double ring_by_test(const struct figure* f, long count) { return ring(f, count, test); }
double ring_by_iprobe(const struct figure* f, long count) { return ring(f, count, probe); }
