/* SPDX-License-Identifier: MIT */
/* Transfers of all kinds around a ring of cells, between globals, stacks and pieces of arrays. */
#include <aplib/cellos.h>
#include <stdio.h>
#include <string.h>

#define LARGE 2000000

static int numbers[LARGE];
static int back[LARGE];
static int arrived, answered, counter;
static long long wide = 1;
static int failures;

static void expect(int good, const char* what) {
  if (good) return;
  ++failures;
  printf("cell %d: %s\n", getcid(), what);
}

#ifndef STACKS_ELSEWHERE
static void stacks(int next, int last) {
  int mine[100], theirs[100];
  int flag = 0;
  int i;
  for (i = 0; i < 100; ++i) {
    mine[i] = getcid() * 1000 + i;
    theirs[i] = -1;
  }
  sync(0, 0);
  put(next, mine, sizeof mine, theirs, &flag, NULL, 0);
  amcheck(&flag, 1);
  for (i = 0; i < 100; ++i) expect(theirs[i] == last * 1000 + i, "put to a stack");
  sync(0, 0);
}
#endif

void cell_main(void) {
  const int next = (getcid() + 1) % getncel();
  const int last = (getcid() + getncel() - 1) % getncel();
  int i, sent = 0, round;
#ifndef STACKS_ELSEWHERE
  stacks(next, last);
#else
  sync(0, 0);
#endif
  for (round = 1; round <= 3; ++round) {
    for (i = 0; i < LARGE; ++i) back[i] = i * round + getcid();
    put(next, back, sizeof back, numbers, &arrived, &sent, 1);
    amcheck(&arrived, round);
    amcheck(&sent, round);
    for (i = 0; i < LARGE; ++i) {
      if (numbers[i] == i * round + last) continue;
      expect(0, "large put");
      break;
    }
    amackwait();
    memset(back, 0, sizeof back);
    get(next, back, sizeof back, numbers, &answered, NULL);
    amcheck(&answered, round);
    for (i = 0; i < LARGE; ++i) {
      if (back[i] == i * round + getcid()) continue;
      expect(0, "large get");
      break;
    }
    sync(0, 0);
  }
  /* from every third of our ints to every seventh of theirs, in many pieces */
  arrived = answered = 0;
  for (i = 0; i < LARGE; ++i) back[i] = i ^ getcid();
  memset(numbers, 0, sizeof numbers);
  sync(0, 0);
  put_stride(next, back, 3 * sizeof(int), sizeof(int), 100000, numbers, 7 * sizeof(int), &arrived, NULL, 0);
  amcheck(&arrived, 1);
  for (i = 0; i < 100000; ++i) {
    if (numbers[7 * i] == ((3 * i) ^ last) && numbers[7 * i + 1] == 0) continue;
    expect(0, "put_stride");
    break;
  }
  sync(0, 0);
  get_stride(next, back, 5 * sizeof(int), sizeof(int), 100000, numbers, 7 * sizeof(int), &answered, NULL);
  amcheck(&answered, 1);
  for (i = 0; i < 100000; ++i) {
    if (back[5 * i] == ((3 * i) ^ getcid())) continue;
    expect(0, "get_stride");
    break;
  }
  expect(arrived == 1 && answered == 1, "one flag per transfer");
  for (i = 0; i < 200; ++i) {
    cellos_fetch_add(0, &counter, 2);
    cellos_fetch_max8(0, &wide, (long long)getcid() << 40);
  }
  sync(0, 0);
  if (getcid() == 0) {
    expect(counter == 400 * getncel(), "fetch_add");
    expect(wide == (getncel() == 1 ? 1 : (long long)(getncel() - 1) << 40), "fetch_max8");
    expect(cellos_compare_swap(getncel() - 1, &counter, 0, 7) == (getncel() == 1 ? 400 : 0), "compare_swap");
  }
  sync(0, 0);
  printf("cell %d: %s\n", getcid(), failures == 0 ? "good" : "BAD");
}
