/* SPDX-License-Identifier: MIT */
/* Bandwidth and message rate from rank 0 to rank 1: windows of messages, each of which ends with an
 * acknowledgement. Within a window, messages are sent and posted in batches of at most 64, as in the OSU benchmarks. */
#include <mpi.h>
#include <stdlib.h>

#include "figure.h"

enum { batch_max = 64, rate_window = 1024 };

static void stream(const struct figure* f, int rank, char* buffer, long window, long times) {
  MPI_Request requests[batch_max];
  const int size = (int)f->bytes;
  char ack = 0;
  for (long i = 0; i < times; ++i) {
    for (long left = window; left > 0; left -= batch_max) {
      const int batch = left < batch_max ? (int)left : batch_max;
      for (int j = 0; j < batch; ++j) {
        if (rank == 0) {
          MPI_Isend(buffer, size, MPI_CHAR, 1, data_tag, MPI_COMM_WORLD, &requests[j]);
        } else {
          MPI_Irecv(buffer, size, MPI_CHAR, 0, data_tag, MPI_COMM_WORLD, &requests[j]);
        }
      }
      MPI_Waitall(batch, requests, MPI_STATUSES_IGNORE);
      for (int j = 0; rank == 1 && f->touch && j < batch; ++j) touch_lines(buffer, f->bytes);
    }
    if (rank == 0) {
      MPI_Recv(&ack, 1, MPI_CHAR, 1, ack_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Send(&ack, 1, MPI_CHAR, 0, ack_tag, MPI_COMM_WORLD);
    }
  }
}

static double windows(const struct figure* f, long window, long count) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank > 1) return 0;
  char* buffer = new_buffer(f->bytes, rank);
  stream(f, rank, buffer, window, warm_up(count));
  const double start = now_seconds();
  stream(f, rank, buffer, window, count);
  const double seconds = now_seconds() - start;
  free(buffer);
  return seconds;
}

static double bandwidth_run(const struct figure* f, long count) { return windows(f, stream_window(f->bytes), count); }
static double rate_run(const struct figure* f, long count) { return windows(f, rate_window, count); }

static double gigabytes_per_second(const struct figure* f, double seconds, long count) {
  return (double)f->bytes * (double)stream_window(f->bytes) * (double)count / seconds / 1e9;
}

static double million_per_second(const struct figure* f, double seconds, long count) {
  (void)f;
  return (double)rate_window * (double)count / seconds / 1e6;
}

void plan_bandwidth(struct plan* plan, const struct command* c) {
  for (int i = 0; i < c->sizes; ++i) {
    add_figure(plan, (struct figure){"bandwidth", c->case_name, c->bytes[i], "GB/s", c->touch, bandwidth_run,
                                     gigabytes_per_second, 1, 0});
  }
}

void plan_rate(struct plan* plan, const struct command* c) {
  add_figure(plan, (struct figure){"rate", c->case_name, 8, "M/s", c->touch, rate_run, million_per_second, 1, 0});
}
