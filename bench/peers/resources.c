/* SPDX-License-Identifier: MIT */
/* What the processes of all ranks use together: processor time while ranks wait, and memory. Ranks that share a process
 * share its figures, too. */
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "figure.h"

/* The system's number of the process that carries the rank. getpid() is a cell's own. */
static double process(void) {
  char number[32] = "";
  const ssize_t length = readlink("/proc/self", number, sizeof number - 1);
  return length > 0 ? atof(number) : (double)getpid();
}

/* The sum of the values of all processes, on rank 0. The first rank of a process speaks for it. */
static double over_processes(double value) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double mine[2] = {process(), value};
  double(*all)[2] = calloc((size_t)ranks, sizeof *all);
  if (all == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Gather(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  double sum = 0;
  for (int i = 0; rank == 0 && i < ranks; ++i) {
    int known = 0;
    for (int j = 0; j < i && !known; ++j) known = all[j][0] == all[i][0];
    if (!known) sum += all[i][1];
  }
  free(all);
  return sum;
}

/* Of all threads of the process, also those that belong to no rank. */
static double processor_seconds(void) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  struct timespec used = {0, 0};
  if (clock_getcpuclockid((pid_t)process(), &clock) != 0 || clock_gettime(clock, &used) != 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
  return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* All ranks but rank 0, which sleeps, wait for a message. Percent of a core. */
static double waiting_percent(const struct figure* f, long count) {
  (void)f;
  (void)count;
  int rank = 0;
  int ranks = 0;
  char message = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  processor_seconds(); /* the first look takes longer */
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now_seconds();
  const double used = processor_seconds();
  if (rank == 0) {
    const struct timespec half_a_second = {0, 500000000};
    nanosleep(&half_a_second, NULL);
  } else {
    MPI_Recv(&message, 1, MPI_CHAR, 0, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  const double percent = 100 * (processor_seconds() - used) / (now_seconds() - start);
  for (int i = 1; rank == 0 && i < ranks; ++i) MPI_Send(&message, 1, MPI_CHAR, i, data_tag, MPI_COMM_WORLD);
  return over_processes(percent);
}

/* What memory this process has by itself, and its share of what it has with others. */
static double kilobytes(void) {
  char line[256];
  double kib = 0;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "Pss: %lf", &kib) == 1) break;
  }
  if (file != NULL) fclose(file);
  return kib * 1.024;
}

static double memory(const struct figure* f, long count) {
  (void)f;
  (void)count;
  MPI_Barrier(MPI_COMM_WORLD);
  const double sum = over_processes(kilobytes());
  MPI_Barrier(MPI_COMM_WORLD); /* nobody ends while others read */
  return sum;
}

static double as_it_is(const struct figure* f, double value, long count) {
  (void)f;
  (void)count;
  return value;
}

void plan_idle(struct plan* plan, const struct command* c) {
  add_figure(plan, (struct figure){"idle", c->case_name, 0, "%", 0, waiting_percent, as_it_is, 0, 0});
}

void plan_memory(struct plan* plan, const struct command* c) {
  add_figure(plan, (struct figure){"memory", c->case_name, 0, "kB", 0, memory, as_it_is, 0, 0});
}
