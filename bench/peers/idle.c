/* SPDX-License-Identifier: MIT */
/* Processor time that one waiting rank uses, in percent of a core: rank 1 waits for a message that rank 0 sends after
 * a sleep. */
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <sys/resource.h>
#include <time.h>

#include "figure.h"

static double processor_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
         1e-6 * ((double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_usec);
}

static double waiting_percent(const struct figure* f, long count) {
  (void)f;
  (void)count;
  int rank = 0;
  double percent = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    const struct timespec half_a_second = {0, 500000000};
    nanosleep(&half_a_second, NULL);
    MPI_Send(&percent, 1, MPI_DOUBLE, 1, data_tag, MPI_COMM_WORLD);
    MPI_Recv(&percent, 1, MPI_DOUBLE, 1, ack_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (rank == 1) {
    const double start = now_seconds();
    const double used = processor_seconds();
    MPI_Recv(&percent, 1, MPI_DOUBLE, 0, data_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    percent = 100 * (processor_seconds() - used) / (now_seconds() - start);
    MPI_Send(&percent, 1, MPI_DOUBLE, 0, ack_tag, MPI_COMM_WORLD);
  }
  return percent;
}

static double as_it_is(const struct figure* f, double percent, long count) {
  (void)f;
  (void)count;
  return percent;
}

void plan_idle(struct plan* plan, const char* case_name) {
  add_figure(plan, (struct figure){"idle", case_name, 0, "%", 0, waiting_percent, as_it_is, 0, 0});
}
