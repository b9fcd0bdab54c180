/* SPDX-License-Identifier: MIT */
/* The C side of the interface. The headers, in the order C_HEADERS and the language version of the build, give
 * prototypes, CellOS's sync beside libc's, and allow the old declarations of dgettime. Built once per C_NAME. */
#include C_FIRST
#include C_SECOND

#include "c_program.h"

/* As the known programs declare it. */
double dgettime();

#define CHECK(condition) \
  if (!(condition)) return __LINE__

int C_NAME(void) {
  int sum = 0;
  int me = getcid();
  int who = -1;
  int* body;
  double third = 1.0 / 3, total = 0;
  float small = 0;

  sync(); /* libc's: writes back the disks' caches and returns nothing */
  CHECK(sync(0, me == 0) == 1);
  CHECK(sync(0, ((void)me, 0)) == 0);
  CHECK(sync(getncel(), sync(0, 1) - 1) == 0);
  CHECK(xy_isum(1, &sum) == 1 && sum == getncel());
  /* What the result points to decides, not the letter. */
  CHECK(xy_fsum(third, &total) == 1 && total == third * getncel());
  CHECK(xy_fsum(third, &small) == 1 && small == (float)third * getncel());
  CHECK(x_fsum(third, &total) == 1 && total == third * getncelx());
  CHECK(y_fsum(third, &total) == 1 && total == third);
  CHECK(xy_fmax(third + me, me, &total, &who) == 1 && total == third + (getncel() - 1) && who == getncel() - 1);
  CHECK(xy_fmax(me, me, &small, &who) == 1 && small == getncel() - 1 && who == getncel() - 1);
  CHECK(x_fmin(third + me, me, &total, &who) == 1 && total == third && who == 0);
  CHECK(y_fmax(third, me, &total, &who) == 1 && total == third && who == me);
  CHECK(l_asend(me, 0, 3, (char*)&me, 4) == 1);
  CHECK(cprobe() != 0);
  /* The pointer is whole. An implicit declaration would cut it to an int. */
  body = (int*)crecv();
  CHECK(sizeof crecv() == sizeof(void*) && *body == me);
  CHECK(getmcid() == me && getmtype() == 3 && getmlen() == 4);
  CHECK(dgettime() > 0);
  CHECK(C_GETTID() == 0);
  return 0;
}

#ifdef C_WITH_CALL
void c_call(void (*function)(void)) {
  char room[64];
  room[0] = 1;
  function();
  if (room[0] != 1) room[1] = 0;
}
#endif
