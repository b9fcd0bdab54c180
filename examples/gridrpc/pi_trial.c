/* SPDX-License-Identifier: MIT */
/* A function as it always was: it knows nothing of remote calls. */
static double next(unsigned long long* state) {
  *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (double)(*state >> 11) / 9007199254740992.0;
}

long pi_trial(int seed, long times) {
  unsigned long long state = (unsigned long long)seed;
  long count = 0;
  for (long i = 0; i < times; ++i) {
    const double x = next(&state), y = next(&state);
    count += x * x + y * y <= 1;
  }
  return count;
}
