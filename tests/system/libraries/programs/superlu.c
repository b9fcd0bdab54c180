/* SPDX-License-Identifier: MIT */
/* SuperLU, whose tuning and statistics are the process's: the equations of a grid of each rank's own size. */
#include <math.h>
#include <slu_ddefs.h>

#include "stress.h"

static void solve(int side, int round) {
  const int n = side * side;
  int *rows = intMalloc(5 * n), *begins = intMalloc(n + 1), *row_order = intMalloc(n), *column_order = intMalloc(n);
  double *values = doubleMalloc(5 * n), *right = doubleCalloc(n);
  int count = 0, info = -1;
  for (int i = 0; i < n; ++i) {
    const int near[5] = {i >= side ? i - side : -1, i % side ? i - 1 : -1, i, i % side < side - 1 ? i + 1 : -1,
                         i + side < n ? i + side : -1};
    begins[i] = count;
    for (int j = 0; j < 5; ++j) {
      if (near[j] < 0) continue;
      values[count] = j == 2 ? 4.5 + rank : -1;
      right[near[j]] += values[count] * (i % 7 + 1);
      rows[count++] = near[j];
    }
  }
  begins[n] = count;
  SuperMatrix a, b, lower, upper;
  superlu_options_t options;
  SuperLUStat_t statistics;
  dCreate_CompCol_Matrix(&a, n, n, count, values, rows, begins, SLU_NC, SLU_D, SLU_GE);
  dCreate_Dense_Matrix(&b, n, 1, right, n, SLU_DN, SLU_D, SLU_GE);
  set_default_options(&options);
  options.ColPerm = round % 2 ? COLAMD : MMD_AT_PLUS_A;
  StatInit(&statistics);
  meet(round);
  dgssv(&options, &a, column_order, row_order, &lower, &upper, &b, &statistics, &info);
  double error = 0;
  for (int i = 0; i < n; ++i) error = fmax(error, fabs(right[i] - (i % 7 + 1)));
  check(info == 0 && error < 1e-9, "a solution");
  StatFree(&statistics);
  Destroy_CompCol_Matrix(&a);
  Destroy_SuperMatrix_Store(&b);
  Destroy_SuperNode_Matrix(&lower);
  Destroy_CompCol_Matrix(&upper);
  SUPERLU_FREE(right), SUPERLU_FREE(row_order), SUPERLU_FREE(column_order);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int round = 0; round < 20; ++round) solve(10 + (rank + round) % 9, round);
  return end();
}
