/* SPDX-License-Identifier: MIT */
/* Barrier, and the sum of one double on every rank, back to back, blocking and nonblocking; and, by the method of the
 * OSU benchmarks, large collectives: each is timed by itself, after a barrier, and the figure is the mean of the
 * ranks. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "figure.h"

enum { root = 0, filling = 0x3f };

static double barriers(const struct figure* f, long count) {
  (void)f;
  for (long i = 0; i < warm_up(count); ++i) MPI_Barrier(MPI_COMM_WORLD);
  const double start = now_seconds();
  for (long i = 0; i < count; ++i) MPI_Barrier(MPI_COMM_WORLD);
  return now_seconds() - start;
}

static double nonblocking_barriers(const struct figure* f, long count) {
  (void)f;
  double start = 0;
  for (long i = -warm_up(count); i < count; ++i) {
    if (i == 0) start = now_seconds();
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  return now_seconds() - start;
}

static void refuse(const struct figure* f, int ranks, double result) {
  fprintf(stderr, "mpi_peer: %s of %zu bytes over %d ranks came out as %g\n", f->bench, f->bytes, ranks, result);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void sum(const struct figure* f, int ranks) {
  const double one = 1;
  double result = 0;
  MPI_Allreduce(&one, &result, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (result != (double)ranks) refuse(f, ranks, result);
}

static double sums(const struct figure* f, long count) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (long i = 0; i < warm_up(count); ++i) sum(f, ranks);
  const double start = now_seconds();
  for (long i = 0; i < count; ++i) sum(f, ranks);
  return now_seconds() - start;
}

static double nonblocking_sums(const struct figure* f, long count) {
  const double one = 1;
  double result = 0;
  double start = 0;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (long i = -warm_up(count); i < count; ++i) {
    if (i == 0) start = now_seconds();
    MPI_Request request;
    MPI_Iallreduce(&one, &result, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (result != (double)ranks) refuse(f, ranks, result);
  }
  return now_seconds() - start;
}

static void all_reduce(const struct figure* f, char* out, char* in) {
  MPI_Allreduce(out, in, (int)(f->bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(const struct figure* f, char* out, char* in) {
  (void)out;
  MPI_Bcast(in, (int)f->bytes, MPI_CHAR, root, MPI_COMM_WORLD);
}

static void all_gather(const struct figure* f, char* out, char* in) {
  MPI_Allgather(out, (int)f->bytes, MPI_CHAR, in, (int)f->bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void all_to_all(const struct figure* f, char* out, char* in) {
  MPI_Alltoall(out, (int)f->bytes, MPI_CHAR, in, (int)f->bytes, MPI_CHAR, MPI_COMM_WORLD);
}

/* A fast wrong answer is no figure. `in` has `blocks` blocks. */
static void check(const struct figure* f, const char* out, const char* in, int blocks, float wanted_over_sent) {
  float sent = 0;
  float last = 0;
  memcpy(&sent, out, sizeof sent);
  memcpy(&last, in + (size_t)blocks * f->bytes - sizeof last, sizeof last);
  if (last != wanted_over_sent * sent) refuse(f, blocks, last);
}

typedef void operation(const struct figure* f, char* out, char* in);

static double timed(const struct figure* f, long count, operation* run, int of_all, int adds) {
  int rank = 0;
  int ranks = 0;
  double seconds = 0;
  double over_ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char* out = new_buffer((size_t)ranks * f->bytes, filling);
  char* in = new_buffer((size_t)ranks * f->bytes, rank == root ? filling : 0);
  for (long i = -warm_up(count); i < count; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now_seconds();
    run(f, out, in);
    if (i >= 0) seconds += now_seconds() - start;
  }
  check(f, out, in, of_all ? ranks : 1, adds ? (float)ranks : 1);
  MPI_Reduce(&seconds, &over_ranks, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  free_buffer(out);
  free_buffer(in);
  return over_ranks / ranks;
}

static double all_reduces(const struct figure* f, long count) { return timed(f, count, all_reduce, 0, 1); }
static double broadcasts(const struct figure* f, long count) { return timed(f, count, broadcast, 0, 0); }
static double all_gathers(const struct figure* f, long count) { return timed(f, count, all_gather, 1, 0); }
static double all_to_alls(const struct figure* f, long count) { return timed(f, count, all_to_all, 1, 0); }

void plan_barrier(struct plan* plan, const struct command* c) {
  add_figure(plan, (struct figure){"barrier", c->case_name, 0, "ns", 0, barriers, nanoseconds_per_operation, 1, 0});
}

void plan_reduce(struct plan* plan, const struct command* c) {
  add_figure(plan,
             (struct figure){"reduce", c->case_name, sizeof(double), "ns", 0, sums, nanoseconds_per_operation, 1, 0});
}

void plan_nonblocking(struct plan* plan, const struct command* c) {
  add_figure(plan, (struct figure){"ibarrier", c->case_name, 0, "ns", 0, nonblocking_barriers,
                                   nanoseconds_per_operation, 1, 0});
  add_figure(plan, (struct figure){"iallreduce", c->case_name, sizeof(double), "ns", 0, nonblocking_sums,
                                   nanoseconds_per_operation, 1, 0});
}

static void plan_sizes(struct plan* plan, const struct command* c, const char* bench,
                       double (*run)(const struct figure* self, long count)) {
  for (int i = 0; i < c->sizes; ++i) {
    add_figure(plan, (struct figure){bench, c->case_name, c->bytes[i], "ns", 0, run, nanoseconds_per_operation, 1, 0});
  }
}

void plan_allreduce(struct plan* plan, const struct command* c) { plan_sizes(plan, c, "allreduce", all_reduces); }
void plan_bcast(struct plan* plan, const struct command* c) { plan_sizes(plan, c, "bcast", broadcasts); }
void plan_allgather(struct plan* plan, const struct command* c) { plan_sizes(plan, c, "allgather", all_gathers); }
void plan_alltoall(struct plan* plan, const struct command* c) { plan_sizes(plan, c, "alltoall", all_to_alls); }
