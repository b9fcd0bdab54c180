/* SPDX-License-Identifier: MIT */
/* The command line of mpi_peer and shmem_peer. */
#ifndef PEERS_COMMAND_H
#define PEERS_COMMAND_H

#include <stddef.h>

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
  const char* folder; /* in which files are made; NULL: where the program was started */
  int touch;
};

/* Returns the word that cannot be used, or NULL. */
const char* parse(struct command* c, int argc, char** argv);

#endif
