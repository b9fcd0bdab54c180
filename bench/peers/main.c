/* SPDX-License-Identifier: MIT */
/* mpi_peer: measures an MPI library as apbench measures APlib. bench/compare builds it with each library's mpicc and
 * runs it.
 *
 *   mpirun -n 2 mpi_peer --peer openmpi --case two-processors latency bandwidth --bytes 8,65536 --samples 3 \
 *     --sample-ms 6
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "figure.h"

/* Returns the fault, or NULL. */
static const char* make_plan(struct plan* plan, const struct command* c) {
  for (int i = 0; i < c->bench_count; ++i) {
    const char* bench = c->benches[i];
    if (strcmp(bench, "latency") == 0) {
      plan_latency(plan, c->case_name, c->bytes, c->sizes, c->touch);
    } else if (strcmp(bench, "bandwidth") == 0) {
      plan_bandwidth(plan, c->case_name, c->bytes, c->sizes, c->touch);
    } else if (strcmp(bench, "rate") == 0) {
      plan_rate(plan, c->case_name, c->touch);
    } else if (strcmp(bench, "barrier") == 0) {
      plan_barrier(plan, c->case_name);
    } else if (strcmp(bench, "reduce") == 0) {
      plan_reduce(plan, c->case_name);
    } else if (strcmp(bench, "idle") == 0) {
      plan_idle(plan, c->case_name);
#ifndef AMPI
    } else if (strcmp(bench, "put") == 0) {
      plan_put(plan, c->case_name, c->bytes, c->sizes);
    } else if (strcmp(bench, "get") == 0) {
      plan_get(plan, c->case_name, c->bytes, c->sizes);
#endif
    } else {
      return bench;
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  struct command command;
  struct plan* plan = calloc(1, sizeof *plan);
  const char* fault = plan == NULL ? "memory" : parse(&command, argc, argv);
  if (fault == NULL) fault = make_plan(plan, &command);
  if (fault != NULL) {
    fprintf(stderr, "mpi_peer: cannot use '%s'; see the head of main.c for the command line\n", fault);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  measure(plan, command.peer, command.samples, command.sample_ms / 1e3);
  free(plan);
  MPI_Finalize();
  return 0;
}
