/* SPDX-License-Identifier: MIT */
/* The pattern of clock tests of that time: a host that only starts 64 cells, and cells that watch the clock. */
#include <stdio.h>

#include "aplib/cellos.h"

double dgettime();

host_main() {
  cconfxy(64, 1);
  ccreat("clock", 30, (void*)0);
  return 0;
}

cell_main() {
  double start = dgettime(), now, last = start;
  int backwards = 0;
  while ((now = dgettime()) < start + 0.002) {
    if (now < last) ++backwards;
    last = now;
  }
  printf("cell %d of %d: backwards %d\n", getcid(), getncel(), backwards);
  return 0;
}
