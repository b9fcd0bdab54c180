/* SPDX-License-Identifier: MIT */
/* GMP and MPFR: functions of memory that meet others, the precision, range and flags of the process, its caches. */
#include <gmp.h>
#include <mpfr.h>
#include <stdlib.h>
#include <string.h>

#include "stress.h"

static long blocks;

static void* take(size_t size) {
  ++blocks;
  return malloc(size);
}
static void* resize(void* block, size_t before, size_t size) {
  (void)before;
  return realloc(block, size);
}
static void give(void* block, size_t size) {
  (void)size;
  --blocks;
  free(block);
}

static void whole(int round) {
  mpz_t a, b, c;
  mpz_inits(a, b, c, NULL);
  mpz_ui_pow_ui(a, (unsigned)rank + 2, 500);
  meet(round);
  mpz_fac_ui(b, 300);
  mpz_mul(c, a, b);
  mpz_divexact(c, c, b);
  check(mpz_cmp(a, c) == 0, "whole numbers");
  mpz_clears(a, b, c, NULL);
}

/* atan(1/2) + atan(1/3) = pi / 4, in as many bits as this rank has. */
static void real(int round) {
  mpfr_t a, b, pi;
  mpfr_set_default_prec(200 + 64 * rank);
  mpfr_inits(a, b, pi, (mpfr_ptr)0);
  mpfr_set_ui(a, 2, MPFR_RNDN);
  mpfr_set_ui(b, 3, MPFR_RNDN);
  mpfr_ui_div(a, 1, a, MPFR_RNDN);
  mpfr_ui_div(b, 1, b, MPFR_RNDN);
  mpfr_atan(a, a, MPFR_RNDN);
  meet(round);
  mpfr_atan(b, b, MPFR_RNDN);
  mpfr_add(a, a, b, MPFR_RNDN);
  mpfr_mul_ui(a, a, 4, MPFR_RNDN);
  mpfr_const_pi(pi, MPFR_RNDN);
  mpfr_sub(a, a, pi, MPFR_RNDN);
  check(mpfr_get_prec(a) == 200 + 64 * rank && (mpfr_zero_p(a) || mpfr_get_exp(a) < -190 - 64 * rank), "pi");
  mpfr_clear_flags();
  mpfr_set_emax(100 + rank);
  mpfr_set_ui_2exp(a, 1, 99 + rank, MPFR_RNDN);
  check(!mpfr_overflow_p(), "a number below the limit");
  meet(round + 1);
  mpfr_mul_ui(a, a, 2, MPFR_RNDN);
  check(mpfr_overflow_p() && mpfr_inf_p(a), "a number above the limit");
  mpfr_set_emax(mpfr_get_emax_max());
  mpfr_clears(a, b, pi, (mpfr_ptr)0);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  mp_set_memory_functions(take, resize, give);
  for (int round = 0; round < 30; ++round) {
    whole(round);
    real(round);
    if (round % 10 == 9) mpfr_free_cache();
  }
  mpfr_free_cache();
  mpfr_mp_memory_cleanup();
  check(blocks == 0, "blocks of memory are left");
  return end();
}
