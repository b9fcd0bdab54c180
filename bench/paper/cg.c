/* SPDX-License-Identifier: MIT */
/* Conjugate gradients for Poisson's equation on a square, as a textbook writes them for MPI: each rank has as many rows
 * as any other, within one, exchanges a row with each neighbour, and takes part in two sums an iteration. Any MPI runs
 * it. For scripts/paper, it takes some of scg's options and prints its result as scg does.
 *
 * The variable BENCH_PASSES slows a host down as it does bench-scg (slower.cpp): a pass over a rank's unknowns counts
 * as so many. The additional ones go over vectors of their own, which fit a core's cache, and change no result. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { load_unknowns = 8192, flops_an_unknown = 20 };

/* A rank's rows, with a row of the neighbour, or of the boundary, below and above. */
static int side, rows;
static double *p, *q, *r, *x;

static double* new_vector(void) {
  double* made = calloc((size_t)(rows + 2) * (size_t)side, sizeof *made);
  if (made == NULL) {
    fprintf(stderr, "cg: no memory for %d rows of %d unknowns\n", rows, side);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return made;
}

/* The pass over `count` unknowns in vectors without boundaries. */
static void additional_pass(long count) {
  static double a[load_unknowns + 2], b[load_unknowns + 2], c[load_unknowns + 2];
  double sum = 1;
  for (long i = 1; i <= count; ++i) {
    b[i] = 4 * a[i] - a[i - 1] - a[i + 1] - c[i - 1] - c[i + 1];
    sum += a[i] * b[i];
  }
  for (long i = 1; i <= count; ++i) {
    c[i] += 0.5 * (a[i] - b[i]);
    a[i] = 0.25 * (b[i] + c[i]) + 1 / sum;
  }
}

static void slow_down(double passes) {
  long left = (long)((passes - 1) * rows * side + 0.5);
  for (; left > 0; left -= load_unknowns) additional_pass(left < load_unknowns ? left : load_unknowns);
}

static void exchange_rows(int below, int above) {
  MPI_Sendrecv(p + (long)rows * side, side, MPI_DOUBLE, above, 0, p, side, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Sendrecv(p + side, side, MPI_DOUBLE, below, 1, p + (long)(rows + 1) * side, side, MPI_DOUBLE, above, 1,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* q = A p; p times q. */
static double apply(void) {
  double sum = 0;
  for (int row = 1; row <= rows; ++row) {
    const double* at = p + (long)row * side;
    double* to = q + (long)row * side;
    for (int i = 0; i < side; ++i) {
      const double west = i > 0 ? at[i - 1] : 0, east = i + 1 < side ? at[i + 1] : 0;
      to[i] = 4 * at[i] - west - east - at[i - side] - at[i + side];
      sum += at[i] * to[i];
    }
  }
  return sum;
}

static double sum_of_all(double mine) {
  double sum;
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

int main(int argc, char** argv) {
  int rank, ranks, iterations = 100;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  side = 256;
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], "--grid") == 0) side = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--max-iter") == 0) iterations = atoi(argv[i + 1]);
  }
  rows = (int)((long)side * (rank + 1) / ranks - (long)side * rank / ranks);
  p = new_vector(), q = new_vector(), r = new_vector(), x = new_vector();
  const char* variable = getenv("BENCH_PASSES");
  const double passes = variable == NULL ? 1 : atof(variable);
  const int below = rank > 0 ? rank - 1 : MPI_PROC_NULL, above = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
  const long first = side, end = (long)(rows + 1) * side;
  for (long i = first; i < end; ++i) p[i] = r[i] = 1;

  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  double rr = (double)side * side;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    exchange_rows(below, above);
    const double alpha = rr / sum_of_all(apply());
    double mine = 0;
    for (long i = first; i < end; ++i) {
      x[i] += alpha * p[i];
      r[i] -= alpha * q[i];
      mine += r[i] * r[i];
    }
    const double before = rr;
    rr = sum_of_all(mine);
    for (long i = first; i < end; ++i) p[i] = r[i] + rr / before * p[i];
    slow_down(passes);
  }
  const double seconds = MPI_Wtime() - begin;
  if (rank == 0)
    printf("{\"mflops\":%.6g,\"cells\":[1,%d],\"seconds\":%.9g,\"iterations\":%d,\"residual\":%.17g}\n",
           1e-6 * flops_an_unknown * side * side * iterations / seconds, ranks, seconds, iterations, rr);
  MPI_Finalize();
  return 0;
}
