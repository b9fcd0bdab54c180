/* SPDX-License-Identifier: MIT */
/* mpi_peer: measures an MPI library as apbench measures APlib. bench/compare builds it with each library's mpicc and
 * runs it.
 *
 *   mpirun -n 2 mpi_peer --peer openmpi --case two-processors latency bandwidth --bytes 8,65536 --samples 3 \
 *     --sample-ms 6
 */
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "figure.h"

/* For the time that starting and ending takes. */
static void plan_hello(struct plan* plan, const struct command* c) {
  (void)plan;
  (void)c;
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  printf("hello from %d of %d\n", rank, ranks);
}

/* Returns the fault, or NULL. */
static const char* make_plan(struct plan* plan, const struct command* c) {
  const struct {
    const char* name;
    void (*plan)(struct plan* plan, const struct command* c);
  } benches[] = {
      {"latency", plan_latency},
      {"vector", plan_vector},
      {"bandwidth", plan_bandwidth},
      {"rate", plan_rate},
      {"barrier", plan_barrier},
      {"reduce", plan_reduce},
      {"allreduce", plan_allreduce},
      {"bcast", plan_bcast},
      {"allgather", plan_allgather},
      {"alltoall", plan_alltoall},
      {"nonblocking", plan_nonblocking},
      {"idle", plan_idle},
      {"memory", plan_memory},
      {"hello", plan_hello},
#ifndef AMPI
      {"put", plan_put},
      {"get", plan_get},
      {"files", plan_files},
#endif
  };
  const int known = (int)(sizeof benches / sizeof benches[0]);
  for (int i = 0; i < c->bench_count; ++i) {
    int found = 0;
    while (found < known && strcmp(benches[found].name, c->benches[i]) != 0) ++found;
    if (found == known) return c->benches[i];
    benches[found].plan(plan, c);
  }
  return c->folder != NULL && chdir(c->folder) != 0 ? c->folder : NULL;
}

int main(int argc, char** argv) { return run_peer(argc, argv, "mpi_peer", make_plan); }
