/* SPDX-License-Identifier: MIT */
/* Adds up a table again and again, for a profiler to find. */
#include <stdio.h>
#include <stdlib.h>

double table[1024];

__attribute__((noinline)) double add_up(int rounds) {
  double sum = 0;
  for (int i = 0; i < rounds; ++i) {
    for (int k = 0; k < 1024; ++k) sum += table[k] * i;
  }
  return sum;
}

int main(int argc, char** argv) {
  for (int k = 0; k < 1024; ++k) table[k] = k;
  printf("%g\n", add_up(argc > 1 ? atoi(argv[1]) : 200000));
  return 0;
}
