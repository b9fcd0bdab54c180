/* SPDX-License-Identifier: MIT */
/* GSL: its handler of errors, generators from the environment, integration and roots by functions that meet others. */
#include <gsl/gsl_errno.h>
#include <gsl/gsl_integration.h>
#include <gsl/gsl_math.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_roots.h>
#include <gsl/gsl_sf_gamma.h>
#include <stdlib.h>

#include "stress.h"

static int calls, told;

static double power(double x, void* unused) {
  (void)unused;
  if (++calls % 20 == 0) meet(calls);
  return gsl_pow_int(x, rank + 1);
}
static void tell(const char* reason, const char* file, int line, int number) {
  (void)reason, (void)file, (void)line;
  meet(1);
  told = number;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  char seed[16];
  snprintf(seed, sizeof seed, "%d", 100 + rank);
  setenv("GSL_RNG_SEED", seed, 1);
  setenv("GSL_RNG_TYPE", rank % 2 ? "taus2" : "mt19937", 1);
  check(freopen("/dev/null", "w", stderr) != NULL, "stderr"); /* where it tells the settings */
  gsl_rng_env_setup();
  check(
      gsl_rng_default_seed == 100U + (unsigned)rank && gsl_rng_default == (rank % 2 ? gsl_rng_taus2 : gsl_rng_mt19937),
      "the generator");
  gsl_set_error_handler(tell);
  gsl_integration_workspace* space = gsl_integration_workspace_alloc(100);
  gsl_rng *first = gsl_rng_alloc(gsl_rng_default), *second = gsl_rng_alloc(gsl_rng_default);
  for (int round = 0; round < 30; ++round) {
    gsl_function function = {power, NULL};
    double value = 0, error = 0;
    calls = 0;
    gsl_integration_qags(&function, 0, 1, 1e-10, 1e-10, 100, space, &value, &error);
    check(fabs(value - 1.0 / (rank + 2)) < 1e-9, "an integral");
    check(gsl_rng_get(first) == gsl_rng_get(second), "random numbers");
    meet(round);
    gsl_root_fsolver* solver = gsl_root_fsolver_alloc(gsl_root_fsolver_brent);
    told = 0;
    check(gsl_root_fsolver_set(solver, &function, 1, 2) == GSL_EINVAL && told == GSL_EINVAL, "a handler of errors");
    gsl_root_fsolver_free(solver);
    told = 0;
    check(isnan(gsl_sf_gamma(-1.0 * rank)) && told == GSL_EDOM, "a pole");
  }
  gsl_rng_free(first);
  gsl_rng_free(second);
  gsl_integration_workspace_free(space);
  return end();
}
