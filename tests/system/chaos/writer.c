/* SPDX-License-Identifier: MIT */
/* Cells that write lines, for ever or a given number: writer LINES. */
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const long lines = argc > 1 ? atol(argv[1]) : 0;
  for (long line = 0; lines == 0 || line < lines; ++line) {
    if (printf("cell %d line %ld\n", getcid(), line) < 0) return 3;
    if (line % 64 == 0) fflush(stdout);
  }
  return 0;
}
