/* SPDX-License-Identifier: MIT */
/* Speaks, and then computes for ever without a call. */
#include <stdio.h>

int main(void) {
  puts("spins");
  fflush(stdout);
  for (volatile long i = 0;; ++i) {
  }
}
