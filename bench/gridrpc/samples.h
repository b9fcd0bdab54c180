/* SPDX-License-Identifier: MIT */
/* Samples of a benchmark in C: their median, and the time in seconds. */
#ifndef BENCH_GRIDRPC_SAMPLES_H
#define BENCH_GRIDRPC_SAMPLES_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* clock_gettime(), also where the compiler keeps to the C standard */
#endif

#include <stdlib.h>
#include <time.h>

enum { samples = 15 };

static inline int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static inline double median(double* values) {
  qsort(values, samples, sizeof *values, compare);
  return values[samples / 2];
}

static inline double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#endif
