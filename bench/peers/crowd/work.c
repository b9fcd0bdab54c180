/* SPDX-License-Identifier: MIT */
#include "work.h"

#include <mpi.h>
#include <stdint.h>

#include "../figure.h"

enum { trials = 40, trial_steps = 40000 };

/* The same in all ranks, so that it does not matter who shares it. */
static double steps_in_a_microsecond = 1000;

static void take(long steps) {
  uint64_t state = 1;
  for (long i = 0; i < steps; ++i) state = state * 6364136223846793005u + 1442695040888963407u;
  __asm__ volatile("" : : "r"(state)); /* the compiler must take the result for used, and keep the loop */
}

void calibrate_work(void) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  double best = 1;
  for (int i = 0; rank == 0 && i < trials; ++i) { /* the shortest trial is one that nobody has interrupted */
    const double start = now_seconds();
    take(trial_steps);
    const double seconds = now_seconds() - start;
    if (seconds < best) best = seconds;
  }
  double steps = trial_steps / (best * 1e6);
  MPI_Bcast(&steps, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  steps_in_a_microsecond = steps;
}

void work(double microseconds) { take((long)(microseconds * steps_in_a_microsecond)); }

void uneven_work(double mean_microseconds, long rank, long step) {
  uint64_t mixed = (uint64_t)rank * 0x9e3779b97f4a7c15u + (uint64_t)step * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 31) * 0x94d049bb133111ebu;
  work(2 * mean_microseconds * (double)(mixed >> 40) / (double)(1 << 24));
}
