/* SPDX-License-Identifier: MIT */
/* The host half of a program in the C of that time: main, no prototypes, the historical header. */
#include <chost.c7.h>
#include <stdio.h>
#include <unistd.h>

main(argc, argv) int argc;
char** argv;
{
  int *msg, sum, width, height;
  sum = 0;
  width = argc > 1 && argv[1][0] == 'm' ? 4 : 2;
  height = 2;
  cconfxy(width, height);
  ccreat("old_cell", 30, NULL);
  initstat(1);
  while ((msg = (int*)crecv()) != NULL) sum += msg[0] + 100 * msg[1];
  waitstable();
  printf("host: %d cells, sum %d\n", getncel(), sum);
  return 0;
}
