/* SPDX-License-Identifier: MIT */
/* Steps of simulations: work, and an exchange with neighbours or with all. */
#include <mpi.h>

#include "patterns.h"
#include "work.h"

enum { face = 128, block = 64, work_microseconds = 20, sides = 2 };

/* A face of 1 KiB to and from both neighbours. */
static void exchange(const struct figure* f, const struct world* w, long step) {
  double in[sides][face];
  double out[face];
  const int neighbours[sides] = {(w->rank + w->ranks - 1) % w->ranks, (w->rank + 1) % w->ranks};
  MPI_Request requests[2 * sides];
  for (int i = 0; i < face; ++i) out[i] = (double)(step * w->ranks + w->rank);
  for (int side = 0; side < sides; ++side) {
    MPI_Irecv(in[side], face, MPI_DOUBLE, neighbours[side], side, MPI_COMM_WORLD, &requests[side]);
  }
  for (int side = 0; side < sides; ++side) { /* my left face is the right one of my left neighbour */
    MPI_Isend(out, face, MPI_DOUBLE, neighbours[side], 1 - side, MPI_COMM_WORLD, &requests[sides + side]);
  }
  MPI_Waitall(2 * sides, requests, MPI_STATUSES_IGNORE);
  for (int side = 0; side < sides; ++side) {
    const double wanted = (double)(step * w->ranks + neighbours[side]);
    demand(in[side][0] == wanted && in[side][face - 1] == wanted, f);
  }
}

static double halo(const struct figure* f, long count, int uneven) {
  const struct world w = world();
  double start = 0;
  for (long step = -warm_up(count); step < count; ++step) {
    if (step == 0) start = now_seconds();
    if (uneven) {
      uneven_work(work_microseconds, w.rank, step);
    } else {
      work(work_microseconds);
    }
    exchange(f, &w, step);
  }
  return span(start);
}

double even_halo(const struct figure* f, long count) { return halo(f, count, 0); }
double uneven_halo(const struct figure* f, long count) { return halo(f, count, 1); }

double sums_between_work(const struct figure* f, long count) {
  const struct world w = world();
  double start = 0;
  for (long step = -warm_up(count); step < count; ++step) {
    if (step == 0) start = now_seconds();
    work(work_microseconds);
    const double mine = (double)(step + w.rank);
    double sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    demand(sum == (double)(step * w.ranks) + (double)w.ranks * (w.ranks - 1) / 2, f);
  }
  return span(start);
}

double all_to_all(const struct figure* f, long count) {
  const struct world w = world();
  int* out = (int*)new_buffer(sizeof(int) * block * (size_t)w.ranks, 0);
  int* in = (int*)new_buffer(sizeof(int) * block * (size_t)w.ranks, 0);
  double start = 0;
  for (long step = -warm_up(count); step < count; ++step) {
    if (step == 0) start = now_seconds();
    for (int to = 0; to < w.ranks; ++to) out[to * block] = out[to * block + block - 1] = (int)step + w.rank - to;
    MPI_Alltoall(out, block, MPI_INT, in, block, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < w.ranks; ++from) {
      const int wanted = (int)step + from - w.rank;
      demand(in[from * block] == wanted && in[from * block + block - 1] == wanted, f);
    }
  }
  const double seconds = span(start);
  free_buffer((char*)in);
  free_buffer((char*)out);
  return seconds;
}
