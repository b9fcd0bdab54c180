/* SPDX-License-Identifier: MIT */
/* Cells end in all possible ways, and the others go on. The host counts the survivors' messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aplib/cellos.h"

static void at_exit(void) { puts("process ends"); }

static void quit(void) { exit(0); }

static void call(void (*function)(void)) {
  function();
  abort();
}

void cell_main(void) {
  const int me = getcid();
  int round, neighbour;
  if (me == 0) return;
  if (me == 1) exit(0);
  if (me == 2) cell_exit(0);
  if (me == 3) call(quit);
  /* Two cells are left and go on. */
  neighbour = me == 4 ? 5 : 4;
  for (round = 0; round < 100; ++round) {
    l_asend(neighbour, 0, 0, &round, sizeof round);
    if (*(int*)l_arecv(neighbour, 0, 0) != round) abort();
  }
  h_send(0, &round, sizeof round);
  exit(0);
}

int host_main(int argc, char** argv) {
  int* rounds;
  int sum = 0;
  atexit(at_exit);
  cconfxy(6, 1);
  ccreat("ends", 0, NULL);
  while ((rounds = (int*)crecv()) != NULL) sum += *rounds;
  waitstable();
  printf("%d arguments, last %s; rounds %d\n", argc, argv[argc - 1], sum);
  exit(strcmp(argv[argc - 1], "fail") == 0 ? 7 : 0);
}
