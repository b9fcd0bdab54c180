/* SPDX-License-Identifier: MIT */
/* mpi_peer: measures an MPI library as apbench measures APlib. bench/compare builds it with each library's mpicc and starts it.
 *
 *   mpirun -n 2 mpi_peer --peer openmpi --case two-processors latency bandwidth --bytes 8,65536 --samples 3 --sample-ms 6
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figure.h"

enum { sizes_max = 32, benches_max = 8 };

struct command {
  const char* peer;
  const char* case_name;
  const char* benches[benches_max];
  int bench_count;
  size_t bytes[sizes_max];
  int sizes;
  int samples;
  double sample_ms;
  int touch;
};

static void parse_sizes(struct command* c, const char* text) {
  while (*text != '\0' && c->sizes < sizes_max) {
    char* end = NULL;
    c->bytes[c->sizes++] = strtoul(text, &end, 10);
    if (end == text) return;
    text = *end == ',' ? end + 1 : end;
  }
}

/* Returns the fault, or NULL. */
static const char* parse(struct command* c, int argc, char** argv) {
  *c = (struct command){.peer = "mpi", .case_name = "two-processors", .samples = 3, .sample_ms = 6};
  for (int i = 1; i < argc; ++i) {
    const char* word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strncmp(word, "--", 2) != 0) {
      if (c->bench_count == benches_max) return word;
      c->benches[c->bench_count++] = word;
    } else if (strcmp(word, "--touch") == 0) {
      c->touch = 1;
    } else if (value == NULL) {
      return word;
    } else {
      ++i;
      if (strcmp(word, "--peer") == 0) {
        c->peer = value;
      } else if (strcmp(word, "--case") == 0) {
        c->case_name = value;
      } else if (strcmp(word, "--bytes") == 0) {
        parse_sizes(c, value);
      } else if (strcmp(word, "--samples") == 0) {
        c->samples = atoi(value);
      } else if (strcmp(word, "--sample-ms") == 0) {
        c->sample_ms = atof(value);
      } else {
        return word;
      }
    }
  }
  return c->samples < 1 ? "--samples" : NULL;
}

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
