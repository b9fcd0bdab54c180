/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "add.h"

int main(int argc, char** argv) {
  int i;
  for (i = 1; i < argc; ++i) add(atoi(argv[i]));
  printf("%d\n", sum);
  return 0;
}
