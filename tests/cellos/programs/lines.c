/* SPDX-License-Identifier: MIT */
/* Cells without a host program; each writes lines. */
#include <stdio.h>

#include "aplib/cellos.h"

void cell_main(void) {
  int i;
  for (i = 0; i < 50; ++i) {
    printf("cell %d of %d in %dx%d writes line %d\n", getcid(), getncel(), getncelx(), getncely(), i);
    if (i % 10 == 0) sync(0, 0);
  }
}
