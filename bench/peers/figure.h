/* SPDX-License-Identifier: MIT */
/* Measures an MPI library by apbench's method: the same operations, warm-up, sampling in turns, median and
 * percentiles, and the same JSON lines, which begin with the peer's name. There are no global variables, because under
 * AMPI several ranks share them. */
#ifndef PEERS_FIGURE_H
#define PEERS_FIGURE_H

#include <stddef.h>

#include "command.h"

enum { data_tag = 1, ack_tag = 2, figures_max = 64, samples_max = 100 };

/* One figure, and how to take a sample of it. All ranks call `run` with the same count; rank 0's result counts. */
struct figure {
  const char* bench;
  const char* case_name;
  size_t bytes;
  const char* unit;
  int touch;                                            /* the receiver reads one byte of each cache line */
  double (*run)(const struct figure* self, long count); /* seconds of `count` operations */
  double (*value)(const struct figure* self, double seconds, long count); /* the figure */
  int calibrated;                                                         /* 0: `run` gets count 1 */
  long count;
};

/* The figures to measure. */
struct plan {
  struct figure figures[figures_max];
  int size;
  double first_seconds; /* for which each figure is tried before it counts */
};

/* Samples all figures in turn and prints a JSON line for each on rank 0. */
void measure(struct plan* plan, const char* peer, int samples, double sample_seconds);

/* The main function of the program `name`: plans what its command line names, and measures it. make_plan() returns the
 * fault, or NULL. */
int run_peer(int argc, char** argv, const char* name,
             const char* (*make_plan)(struct plan* plan, const struct command* c));

double now_seconds(void);

/* Page-aligned memory filled with `fill`. Ends the program when there is none. */
char* new_buffer(size_t bytes, int fill);
void free_buffer(char* buffer);
void touch_lines(const char* bytes, size_t size);

/* Operations before the timed ones. */
long warm_up(long count);

/* Messages, puts or gets of a stream between two acknowledgements: 64, fewer when that would be more than 16 MiB, as in
 * apbench. */
long stream_window(size_t bytes);

double nanoseconds_per_operation(const struct figure* self, double seconds, long count);

/* Each adds its figures, of the command's sizes. The command's case says how the launcher placed the ranks. */
void plan_latency(struct plan* plan, const struct command* c);
void plan_vector(struct plan* plan, const struct command* c);
void plan_bandwidth(struct plan* plan, const struct command* c);
void plan_rate(struct plan* plan, const struct command* c);
void plan_barrier(struct plan* plan, const struct command* c);
void plan_reduce(struct plan* plan, const struct command* c);
void plan_allreduce(struct plan* plan, const struct command* c);
void plan_bcast(struct plan* plan, const struct command* c);
void plan_allgather(struct plan* plan, const struct command* c);
void plan_alltoall(struct plan* plan, const struct command* c);
void plan_idle(struct plan* plan, const struct command* c);
void plan_memory(struct plan* plan, const struct command* c);
void plan_nonblocking(struct plan* plan, const struct command* c);
void plan_files(struct plan* plan, const struct command* c);
void plan_put(struct plan* plan, const struct command* c);
void plan_get(struct plan* plan, const struct command* c);

/* Adds one figure. */
void add_figure(struct plan* plan, struct figure figure);

#endif
