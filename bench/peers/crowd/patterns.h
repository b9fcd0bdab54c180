/* SPDX-License-Identifier: MIT */
/* Patterns of communication in which ranks wait for each other, each of which checks what it receives. */
#ifndef PEERS_CROWD_PATTERNS_H
#define PEERS_CROWD_PATTERNS_H

#include "../figure.h"

struct world {
  int rank;
  int ranks;
};

struct world world(void);

/* Ends the program if a pattern has received something else than it must. */
void demand(int right, const struct figure* f);

/* Seconds since the first rank began, until the last one is here, in all ranks. A rank that is ahead may have done work
 * of the steps that are measured before another one begins. */
double span(double start);

/* Seconds of `count` times the pattern. */
double ring_by_recv(const struct figure* f, long count);
double ring_by_test(const struct figure* f, long count);
double ring_by_iprobe(const struct figure* f, long count);
double even_halo(const struct figure* f, long count);
double uneven_halo(const struct figure* f, long count);
double sums_between_work(const struct figure* f, long count);
double all_to_all(const struct figure* f, long count);
double master_and_workers(const struct figure* f, long count);
double one_computes_1_ms(const struct figure* f, long count);
double one_computes_10_ms(const struct figure* f, long count);
double one_computes_100_ms(const struct figure* f, long count);

#endif
