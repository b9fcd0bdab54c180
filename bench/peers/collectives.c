/* SPDX-License-Identifier: MIT */
/* Barrier, and the sum of one double on every rank, back to back. */
#include <mpi.h>
#include <stdio.h>

#include "figure.h"

static double barriers(const struct figure* f, long count) {
  (void)f;
  for (long i = 0; i < warm_up(count); ++i) MPI_Barrier(MPI_COMM_WORLD);
  const double start = now_seconds();
  for (long i = 0; i < count; ++i) MPI_Barrier(MPI_COMM_WORLD);
  return now_seconds() - start;
}

static void sum(int ranks) {
  const double one = 1;
  double result = 0;
  MPI_Allreduce(&one, &result, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (result != (double)ranks) {
    fprintf(stderr, "mpi_peer: the sum of 1 over %d ranks came out as %g\n", ranks, result);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static double sums(const struct figure* f, long count) {
  (void)f;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (long i = 0; i < warm_up(count); ++i) sum(ranks);
  const double start = now_seconds();
  for (long i = 0; i < count; ++i) sum(ranks);
  return now_seconds() - start;
}

void plan_barrier(struct plan* plan, const char* case_name) {
  add_figure(plan, (struct figure){"barrier", case_name, 0, "ns", 0, barriers, nanoseconds_per_operation, 1, 0});
}

void plan_reduce(struct plan* plan, const char* case_name) {
  add_figure(plan,
             (struct figure){"reduce", case_name, sizeof(double), "ns", 0, sums, nanoseconds_per_operation, 1, 0});
}
