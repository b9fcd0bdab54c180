/* SPDX-License-Identifier: MIT */
/* OpenBLAS: its pool of threads and buffers, and LAPACK, by products and solutions that are known. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>

#include "stress.h"

extern void dgesv_(const int* n, const int* columns, double* a, const int* lda, int* pivots, double* b, const int* ldb,
                   int* status);
extern void openblas_set_num_threads(int count);

/* The inverse of a matrix of min(i, j) is known: 2 in its diagonal (but its last element is 1), -1 beside it. */
static double small(int i, int j) { return (double)((i < j ? i : j) + 1); }
static double inverse(int n, int i, int j) {
  if (i == j) return i == n - 1 ? 1 : 2;
  return abs(i - j) == 1 ? -1 : 0;
}

static void round_of(int n, int round) {
  const size_t size = (size_t)n * (size_t)n;
  double *a = malloc(size * sizeof *a), *b = malloc(size * sizeof *b), *c = malloc(size * sizeof *c), error = 0;
  int *pivots = malloc((size_t)n * sizeof *pivots), status = -1;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) a[i * n + j] = small(i, j), b[i * n + j] = inverse(n, i, j);
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, rank + 1.0, a, n, b, n, 0.0, c, n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) error = fmax(error, fabs(c[i * n + j] - (i == j ? rank + 1.0 : 0.0)));
  check(error < 1e-9, "a product");
  meet(round);
  for (int i = 0; i < n; ++i) c[i] = i % 2 ? rank : 1;
  cblas_dgemv(CblasRowMajor, CblasNoTrans, n, n, 1.0, a, n, c, 1, 0.0, b, 1);
  const int one = 1;
  dgesv_(&n, &one, a, &n, pivots, b, &n, &status);
  error = 0;
  for (int i = 0; i < n; ++i) error = fmax(error, fabs(b[i] - (i % 2 ? rank : 1)));
  check(status == 0 && error < 1e-6, "a system of equations");
  free(a), free(b), free(c), free(pivots);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int round = 0; round < 8; ++round) {
    openblas_set_num_threads(1 + (rank + round) % 3);
    round_of(40 + 37 * ((rank + round) % 5), round);
    meet(round);
  }
  return end();
}
