/* SPDX-License-Identifier: MIT */
/* The pattern of a parallel sort of that time: a 1 x N machine, one task number everywhere, neighbours that both send
 * their keys (in pieces of 64 kB) before either receives, reductions that decide for all cells when to stop, and a host
 * that gathers in the order of cells. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aplib/cellos.h"

#define TID 30
#define PIECE (64 * 1024)

/* --- the layer that such programs have over CellOS --- */

static void send_all(int to, const void* from, int bytes) {
  const char* at = (const char*)from;
  while (bytes > 0) {
    const int piece = bytes < PIECE ? bytes : PIECE;
    if (l_asend(to, TID, 0, at, piece) != 1) abort();
    at += piece;
    bytes -= piece;
  }
}

static void receive_all(int from, void* into, int bytes) {
  char* at = (char*)into;
  while (bytes > 0) {
    const int got = (l_arecv(from, TID, 0), readmsg(at, bytes));
    at += got;
    bytes -= got;
  }
}

static int compare(const void* a, const void* b) {
  const int x = *(const int*)a, y = *(const int*)b;
  return (x > y) - (x < y);
}

/* --- host --- */

int host_main(int argc, char** argv) {
  const int cells = argc > 1 ? atoi(argv[1]) : 4;
  int per_cell = argc > 2 ? atoi(argv[2]) : 1000;
  int cell, count, total = 0, before = -1, i, *keys;
  double sum = 0, told;

  cconfxy(1, cells);
  ccreat("sorter", TID, NULL);
  initstat(1);
  cbroad(TID, 0, &per_cell, sizeof per_cell);
  for (cell = 0; cell < cells; ++cell) {
    l_arecv(cell, TID, 0);
    readmsg(&count, sizeof count);
    if (getmcid() != cell) return 1;
    keys = (int*)malloc((size_t)count * sizeof *keys + 1);
    receive_all(cell, keys, count * (int)sizeof *keys);
    for (i = 0; i < count; ++i) {
      if (keys[i] < before) {
        printf("cell %d: key %d after %d\n", cell, keys[i], before);
        return 1;
      }
      before = keys[i];
      sum += keys[i];
    }
    free(keys);
    total += count;
  }
  l_arecv(0, TID, 0);
  readmsg(&told, sizeof told);
  printf("%d keys in order, sum %s\n", total, told == sum ? "right" : "wrong");
  waitstable();
  return 0;
}

/* --- cells --- */

/* Keep the lower or upper half of mine and theirs. Returns whether mine changed. */
static int merge_split(int* mine, const int* theirs, int count, int keep_low) {
  int* both = (int*)malloc((size_t)(2 * count) * sizeof *both);
  int changed;
  memcpy(both, mine, (size_t)count * sizeof *both);
  memcpy(both + count, theirs, (size_t)count * sizeof *both);
  qsort(both, (size_t)(2 * count), sizeof *both, compare);
  changed = memcmp(mine, keep_low ? both : both + count, (size_t)count * sizeof *both) != 0;
  memcpy(mine, keep_low ? both : both + count, (size_t)count * sizeof *both);
  free(both);
  return changed;
}

void cell_main(void) {
  int count, i, round, changed, largest, where, *keys, *theirs;
  unsigned seed;
  double sum = 0;
  const int me = getcid(), cells = getncel();

  h_recv(0);
  readmsg(&count, sizeof count);
  keys = (int*)malloc((size_t)count * sizeof *keys);
  theirs = (int*)malloc((size_t)count * sizeof *theirs);
  seed = 12345U + 77U * (unsigned)me;
  for (i = 0; i < count; ++i) {
    seed = seed * 1103515245U + 12345U;
    keys[i] = (int)(seed >> 8 & 0xffffff);
    sum += keys[i];
  }
  xy_dsum(sum, &sum);
  qsort(keys, (size_t)count, sizeof *keys, compare);
  do {
    changed = 0;
    for (round = 0; round < 2; ++round) {
      const int partner = (me + round) % 2 == 0 ? me + 1 : me - 1;
      if (partner < 0 || partner >= cells) continue;
      i = me;
      xy_send(0, partner - me, 0, &i, sizeof i); /* small data goes by line messages */
      if (xy_recvs(0, partner - me, 0, &i, sizeof i) != (int)sizeof i || i != partner) abort();
      send_all(partner, keys, count * (int)sizeof *keys);
      receive_all(partner, theirs, count * (int)sizeof *keys);
      changed |= merge_split(keys, theirs, count, me < partner);
    }
    xy_isum(changed, &changed);
  } while (changed != 0);
  xy_imax(keys[count - 1], me, &largest, &where);
  i = me == where ? largest : -1;
  xy_brd(where, &i, sizeof i);
  /* Equal keys may also be elsewhere, but no larger ones. */
  if (i != largest || keys[count - 1] > largest) abort();

  h_send(0, &count, sizeof count);
  for (i = 0; i < count * (int)sizeof *keys; i += PIECE) {
    const int left = count * (int)sizeof *keys - i;
    h_send(0, (char*)keys + i, left < PIECE ? left : PIECE);
  }
  if (me == 0) h_send(0, &sum, sizeof sum);
  free(keys);
  free(theirs);
  if (gethcid() == me) abort();
  cell_exit(0);
}
