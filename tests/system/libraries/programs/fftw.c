/* SPDX-License-Identifier: MIT */
/* FFTW: plans of all ways, with threads of its own, wisdom, and forgetting all of it. */
#include <fftw3.h>
#include <math.h>
#include <stdlib.h>

#include "stress.h"

static void transform(int n, unsigned way, int round) {
  fftw_complex *a = fftw_alloc_complex((size_t)n), *b = fftw_alloc_complex((size_t)n);
  const fftw_plan there = fftw_plan_dft_1d(n, a, b, FFTW_FORWARD, way);
  meet(round);
  const fftw_plan back = fftw_plan_dft_1d(n, b, b, FFTW_BACKWARD, way);
  for (int i = 0; i < n; ++i) a[i][0] = sin(i + rank), a[i][1] = cos(3 * i);
  fftw_execute(there);
  fftw_execute(back);
  double error = 0;
  for (int i = 0; i < n; ++i) error = fmax(error, hypot(b[i][0] / n - sin(i + rank), b[i][1] / n - cos(3 * i)));
  check(error < 1e-10, "a transform and back");
  fftw_destroy_plan(there);
  fftw_destroy_plan(back);
  fftw_free(a);
  fftw_free(b);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  fftw_init_threads();
  for (int round = 0; round < 20; ++round) {
    fftw_plan_with_nthreads(1 + (rank + round) % 3);
    transform(60 + 7 * ((round * 13 + rank * 29) % 97), FFTW_ESTIMATE, round);
    if (round % 4 == 0) transform(64 + 32 * (rank % 3), FFTW_MEASURE, round);
    char* wisdom = fftw_export_wisdom_to_string();
    meet(round);
    if (round % 5 == 4) fftw_forget_wisdom();
    check(fftw_import_wisdom_from_string(wisdom) == 1, "wisdom");
    free(wisdom);
  }
  fftw_cleanup_threads();
  return end();
}
