/* SPDX-License-Identifier: MIT */
/* One way: half a ping-pong between ranks 0 and 1. */
#include <mpi.h>
#include <stdlib.h>

#include "figure.h"

static void exchange(const struct figure* f, int rank, char* out, char* in, long times) {
  const int size = (int)f->bytes;
  const int peer = 1 - rank;
  for (long i = 0; i < times; ++i) {
    if (rank == 0) MPI_Send(out, size, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD);
    MPI_Recv(in, size, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (f->touch) touch_lines(in, f->bytes);
    if (rank == 1) MPI_Send(out, size, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD);
  }
}

static double ping_pongs(const struct figure* f, long count) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank > 1) return 0;
  char* out = new_buffer(f->bytes, 0x5a + rank);
  char* in = new_buffer(f->bytes, 0);
  exchange(f, rank, out, in, warm_up(count));
  const double start = now_seconds();
  exchange(f, rank, out, in, count);
  const double seconds = now_seconds() - start;
  free(out);
  free(in);
  return seconds;
}

static double one_way(const struct figure* f, double seconds, long count) {
  return nanoseconds_per_operation(f, seconds, 2 * count);
}

void plan_latency(struct plan* plan, const char* case_name, const size_t* bytes, int sizes, int touch) {
  for (int i = 0; i < sizes; ++i) {
    add_figure(plan, (struct figure){"latency", case_name, bytes[i], "ns", touch, ping_pongs, one_way, 1, 0});
  }
}
