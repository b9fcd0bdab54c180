/* SPDX-License-Identifier: MIT */
/* crowd_peer: measures how ranks wait for each other where there are more of them than cores. bench/crowd builds it
 * with each library's mpicc and runs it, with the command line of mpi_peer:
 *   mpirun -n 16 crowd_peer --peer openmpi --case 16-ranks ring-recv --samples 5 --sample-ms 20
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "patterns.h"
#include "work.h"

struct world world(void) {
  struct world w;
  MPI_Comm_rank(MPI_COMM_WORLD, &w.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &w.ranks);
  return w;
}

void demand(int right, const struct figure* f) {
  if (right) return;
  fprintf(stderr, "crowd_peer: %s: rank %d has received something else than it must\n", f->bench, world().rank);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

double span(double start) {
  const double ends[2] = {-start, now_seconds()};
  double of_all[2];
  MPI_Allreduce(ends, of_all, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return of_all[1] + of_all[0];
}

static double nanoseconds_per_hop(const struct figure* f, double seconds, long count) {
  return nanoseconds_per_operation(f, seconds, count) / world().ranks;
}

static double nanoseconds_per_task(const struct figure* f, double seconds, long count) {
  return nanoseconds_per_operation(f, seconds, count) / (world().ranks - 1);
}

static const struct figure patterns[] = {
    {"ring-recv", "", 0, "ns", 0, ring_by_recv, nanoseconds_per_hop, 1, 0},
    {"ring-test", "", 0, "ns", 0, ring_by_test, nanoseconds_per_hop, 1, 0},
    {"ring-iprobe", "", 0, "ns", 0, ring_by_iprobe, nanoseconds_per_hop, 1, 0},
    {"halo-even", "", 0, "ns", 0, even_halo, nanoseconds_per_operation, 1, 0},
    {"halo-uneven", "", 0, "ns", 0, uneven_halo, nanoseconds_per_operation, 1, 0},
    {"sum", "", 0, "ns", 0, sums_between_work, nanoseconds_per_operation, 1, 0},
    {"alltoall", "", 0, "ns", 0, all_to_all, nanoseconds_per_operation, 1, 0},
    {"master", "", 0, "ns", 0, master_and_workers, nanoseconds_per_task, 1, 0},
    {"compute-1ms", "", 0, "ns", 0, one_computes_1_ms, nanoseconds_per_operation, 1, 0},
    {"compute-10ms", "", 0, "ns", 0, one_computes_10_ms, nanoseconds_per_operation, 1, 0},
    {"compute-100ms", "", 0, "ns", 0, one_computes_100_ms, nanoseconds_per_operation, 1, 0},
};

/* Returns the fault, or NULL. */
static const char* make_plan(struct plan* plan, const struct command* c) {
  const int known = (int)(sizeof patterns / sizeof patterns[0]);
  for (int i = 0; i < c->bench_count; ++i) {
    int found = 0;
    while (found < known && strcmp(patterns[found].bench, c->benches[i]) != 0) ++found;
    if (found == known) return c->benches[i];
    struct figure figure = patterns[found];
    figure.case_name = c->case_name;
    add_figure(plan, figure);
  }
  if (world().ranks < 2) return "fewer than two ranks";
  calibrate_work();
  plan->first_seconds = 0.2; /* many ranks begin one after the other */
  return NULL;
}

int main(int argc, char** argv) { return run_peer(argc, argv, "crowd_peer", make_plan); }
