/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "figure.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

char* new_buffer(size_t bytes, int fill) {
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, bytes + 1) != 0) {
    fprintf(stderr, "mpi_peer: no memory for a buffer of %zu bytes\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  memset(memory, fill, bytes + 1);
  return memory;
}

void free_buffer(char* buffer) { free(buffer); }

void touch_lines(const char* bytes, size_t size) {
  unsigned sum = 0;
  for (size_t i = 0; i < size; i += 64) sum += (unsigned char)bytes[i];
  __asm__ volatile("" : : "r"(sum)); /* the compiler must take the sum for used, and keep the loop */
}

long warm_up(long count) {
  const long wanted = count / 5 + 1;
  return wanted < 10000 ? wanted : 10000;
}

long stream_window(size_t bytes) {
  const long fits = (long)(((size_t)16 << 20) / (bytes > 0 ? bytes : 1));
  return fits < 4 ? 4 : fits > 64 ? 64 : fits;
}

double nanoseconds_per_operation(const struct figure* self, double seconds, long count) {
  (void)self;
  return seconds * 1e9 / (double)count;
}

void add_figure(struct plan* plan, struct figure figure) {
  if (plan->size < figures_max) plan->figures[plan->size++] = figure;
}

/* All ranks get rank 0's number. */
static double agreed(double value) {
  MPI_Bcast(&value, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return value;
}

static void calibrate(struct figure* f, double sample_seconds, double first_seconds) {
  f->count = 1;
  if (!f->calibrated || sample_seconds <= 0) return;
  /* Ranks may still begin, and make connections: by a trial meanwhile, a sample would be one operation. */
  f->run(f, f->count);
  const double end = now_seconds() + first_seconds;
  while (agreed(now_seconds() < end) != 0) f->run(f, f->count);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double seconds = agreed(f->run(f, f->count));
    double next = (double)f->count * sample_seconds / (seconds > 1e-9 ? seconds : 1e-9);
    if (next < 1) next = 1;
    if (next > 50e6) next = 50e6;
    if (next <= (double)f->count) {
      f->count = (long)next;
      return;
    }
    /* A short trial is inexact, so approach in steps. */
    f->count = next < (double)f->count * 200 ? (long)next : f->count * 200;
  }
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static double quantile(const double* sorted, int size, double q) {
  const double place = q * (double)(size - 1);
  const int below = (int)place;
  const int above = below + 1 < size ? below + 1 : below;
  const double share = place - (double)below;
  return sorted[below] * (1 - share) + sorted[above] * share;
}

static void print_line(const char* peer, const struct figure* f, double* values, int size) {
  qsort(values, (size_t)size, sizeof *values, ascending);
  printf(
      "{\"peer\":\"%s\",\"bench\":\"%s\",\"case\":\"%s\",\"bytes\":%zu,\"value\":%.3f,\"low\":%.3f,\"high\":%.3f,"
      "\"max\":%.3f,\"unit\":\"%s\"}\n",
      peer, f->bench, f->case_name, f->bytes, quantile(values, size, 0.5), quantile(values, size, 0.1),
      quantile(values, size, 0.9), values[size - 1], f->unit);
  fflush(stdout);
}

void measure(struct plan* plan, const char* peer, int samples, double sample_seconds) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (samples > samples_max) samples = samples_max;
  double* values = malloc(sizeof *values * (size_t)plan->size * (size_t)samples);
  if (values == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int i = 0; i < plan->size; ++i) calibrate(&plan->figures[i], sample_seconds, plan->first_seconds);
  for (int round = 0; round < samples; ++round) {
    for (int i = 0; i < plan->size; ++i) {
      const struct figure* f = &plan->figures[i];
      values[i * samples + round] = f->value(f, f->run(f, f->count), f->count);
    }
  }
  for (int i = 0; rank == 0 && i < plan->size; ++i) print_line(peer, &plan->figures[i], values + i * samples, samples);
  free(values);
}

int run_peer(int argc, char** argv, const char* name,
             const char* (*make_plan)(struct plan* plan, const struct command* c)) {
  MPI_Init(&argc, &argv);
  struct command command;
  struct plan* plan = calloc(1, sizeof *plan);
  const char* fault = plan == NULL ? "memory" : parse(&command, argc, argv);
  if (fault == NULL) fault = make_plan(plan, &command);
  if (fault != NULL) {
    fprintf(stderr, "%s: cannot use '%s'; see the head of main.c for the command line\n", name, fault);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  measure(plan, command.peer, command.samples, command.sample_ms / 1e3);
  free(plan);
  MPI_Finalize();
  return 0;
}
