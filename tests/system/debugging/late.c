/* SPDX-License-Identifier: MIT */
/* Reads memory that it has freed. */
#include <stdio.h>
#include <stdlib.h>

static int* numbers;

static int last(void) { return numbers[9]; }

int main(void) {
  numbers = calloc(10, sizeof *numbers);
  free(numbers);
  printf("%d\n", last() != 0);
  return 0;
}
