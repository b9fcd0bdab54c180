/* SPDX-License-Identifier: MIT */
/* Some ranks compute while others wait for long. */
#include <mpi.h>

#include "patterns.h"
#include "work.h"

enum { master = 0, end_of_tasks = -1, task_microseconds = 100 };

static long result_of(long task) { return 2 * task + 1; }

static void work_for_master(void) {
  const struct world w = world();
  for (;;) {
    long task = 0;
    MPI_Recv(&task, 1, MPI_LONG, master, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (task == end_of_tasks) return;
    uneven_work(task_microseconds, w.ranks, task);
    const long result = result_of(task);
    MPI_Send(&result, 1, MPI_LONG, master, data_tag, MPI_COMM_WORLD);
  }
}

/* Gives whoever is free the next task. */
static void hand_out(const struct figure* f, long tasks) {
  const struct world w = world();
  long given = 0;
  long sum = 0;
  for (int worker = 1; worker < w.ranks && given < tasks; ++worker, ++given) {
    MPI_Send(&given, 1, MPI_LONG, worker, data_tag, MPI_COMM_WORLD);
  }
  for (long done = 0; done < tasks; ++done) {
    MPI_Status status;
    long result = 0;
    MPI_Recv(&result, 1, MPI_LONG, MPI_ANY_SOURCE, data_tag, MPI_COMM_WORLD, &status);
    sum += result;
    if (given == tasks) continue;
    MPI_Send(&given, 1, MPI_LONG, status.MPI_SOURCE, data_tag, MPI_COMM_WORLD);
    ++given;
  }
  demand(sum == tasks * tasks, f); /* of the odd numbers */
}

/* A task for each worker is one operation. */
double master_and_workers(const struct figure* f, long count) {
  const struct world w = world();
  if (w.rank != master) {
    work_for_master();
    return 0;
  }
  hand_out(f, warm_up(count) * (w.ranks - 1));
  const double start = now_seconds();
  hand_out(f, count * (w.ranks - 1));
  const double seconds = now_seconds() - start;
  const long end = end_of_tasks;
  for (int worker = 1; worker < w.ranks; ++worker) {
    MPI_Send(&end, 1, MPI_LONG, worker, data_tag, MPI_COMM_WORLD);
  }
  return seconds;
}

/* Another rank in each step. */
static double one_computes(const struct figure* f, long count, double milliseconds) {
  const struct world w = world();
  double start = 0;
  for (long step = -warm_up(count); step < count; ++step) {
    if (step == 0) start = now_seconds();
    const int busy = (int)((step + warm_up(count)) % w.ranks);
    long value = w.rank == busy ? step : 0;
    if (w.rank == busy) work(milliseconds * 1000);
    MPI_Bcast(&value, 1, MPI_LONG, busy, MPI_COMM_WORLD);
    demand(value == step, f);
  }
  return span(start);
}

double one_computes_1_ms(const struct figure* f, long count) { return one_computes(f, count, 1); }
double one_computes_10_ms(const struct figure* f, long count) { return one_computes(f, count, 10); }
double one_computes_100_ms(const struct figure* f, long count) { return one_computes(f, count, 100); }
