/* SPDX-License-Identifier: MIT */
/* One way: half a ping-pong between ranks 0 and 1, of bytes, or of every second float of a buffer; and how long a plain
 * loop takes for the latter. */
#include <mpi.h>

#include "figure.h"

/* A message: so many of this datatype, in so much memory. */
struct body {
  MPI_Datatype type;
  int count;
  size_t memory;
};

static void exchange(const struct figure* f, const struct body* body, int rank, char* out, char* in, long times) {
  const int peer = 1 - rank;
  for (long i = 0; i < times; ++i) {
    if (rank == 0) MPI_Send(out, body->count, body->type, peer, data_tag, MPI_COMM_WORLD);
    MPI_Recv(in, body->count, body->type, peer, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (f->touch) touch_lines(in, body->memory);
    if (rank == 1) MPI_Send(out, body->count, body->type, peer, data_tag, MPI_COMM_WORLD);
  }
}

static double exchanges(const struct figure* f, struct body body, long count) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank > 1) return 0;
  char* out = new_buffer(body.memory, 0x5a + rank);
  char* in = new_buffer(body.memory, 0);
  exchange(f, &body, rank, out, in, warm_up(count));
  const double start = now_seconds();
  exchange(f, &body, rank, out, in, count);
  const double seconds = now_seconds() - start;
  free_buffer(out);
  free_buffer(in);
  return seconds;
}

static double ping_pongs(const struct figure* f, long count) {
  return exchanges(f, (struct body){MPI_CHAR, (int)f->bytes, f->bytes}, count);
}

static double vectors(const struct figure* f, long count) {
  struct body body = {MPI_DATATYPE_NULL, 1, 2 * f->bytes};
  MPI_Type_vector((int)(f->bytes / sizeof(float)), 1, 2, MPI_FLOAT, &body.type);
  MPI_Type_commit(&body.type);
  const double seconds = exchanges(f, body, count);
  MPI_Type_free(&body.type);
  return seconds;
}

static void copy_every_second(float* restrict to, const float* restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[2 * i] = from[2 * i];
  __asm__ volatile("" : : "r"(to) : "memory"); /* each copy must be taken for used */
}

static double loops(const struct figure* f, long count) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank > 0) return 0;
  char* out = new_buffer(2 * f->bytes, 0x5a);
  char* in = new_buffer(2 * f->bytes, 0);
  const size_t floats = f->bytes / sizeof(float);
  double start = 0;
  for (long i = -warm_up(count); i < count; ++i) {
    if (i == 0) start = now_seconds();
    copy_every_second((float*)(void*)in, (const float*)(const void*)out, floats);
  }
  const double seconds = now_seconds() - start;
  free_buffer(out);
  free_buffer(in);
  return seconds;
}

static double one_way(const struct figure* f, double seconds, long count) {
  return nanoseconds_per_operation(f, seconds, 2 * count);
}

void plan_latency(struct plan* plan, const struct command* c) {
  for (int i = 0; i < c->sizes; ++i) {
    add_figure(plan, (struct figure){"latency", c->case_name, c->bytes[i], "ns", c->touch, ping_pongs, one_way, 1, 0});
  }
}

void plan_vector(struct plan* plan, const struct command* c) {
  for (int i = 0; i < c->sizes; ++i) {
    add_figure(plan, (struct figure){"vector", c->case_name, c->bytes[i], "ns", c->touch, vectors, one_way, 1, 0});
    add_figure(plan, (struct figure){"vector-loop", c->case_name, c->bytes[i], "ns", 0, loops,
                                     nanoseconds_per_operation, 1, 0});
  }
}
