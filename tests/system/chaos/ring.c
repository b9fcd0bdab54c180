/* SPDX-License-Identifier: MIT */
/* Cells that pass messages in a ring: ring ROUNDS BYTES FILE. With 0 rounds they do until FILE exists where cell 0 is,
 * for ever if none is given. It writes "all run" when every cell has begun, "round N" before rounds 1, 2, 4, 8, ... of
 * those, and "all done" at the end. */
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const long rounds = argc > 1 ? atol(argv[1]) : 0;
  const int bytes = argc > 2 ? atoi(argv[2]) : 16;
  const char* const file = argc > 3 ? argv[3] : NULL;
  const int cells = getncel(), mine = getcid();
  const int right = (mine + 1) % cells, left = (mine + cells - 1) % cells;
  char* body = malloc(bytes);
  char* got = malloc(bytes);
  memset(body, mine, bytes);
  cellos_sync(0, 0);
  if (mine == 0) {
    printf("all run\n");
    fflush(stdout);
  }
  long end = rounds; /* 0: not known. Cell 0 tells it, a round for every cell before. */
  for (long round = 0; end == 0 || round < end; ++round) {
    if (mine == 0 && end == 0 && file != NULL && access(file, F_OK) == 0) end = round + cells + 1;
    if (file != NULL) memcpy(body, &end, sizeof end);
    if (mine == 0 && rounds == 0 && round > 0 && (round & (round - 1)) == 0) {
      printf("round %ld\n", round);
      fflush(stdout);
    }
    l_asend(right, 0, 1, body, bytes);
    l_arecv(left, 0, 1);
    readmsg(got, bytes);
    if (got[bytes - 1] != (char)left) {
      printf("cell %d: wrong bytes from %d\n", mine, left);
      return 1;
    }
    if (file != NULL && end == 0) memcpy(&end, got, sizeof end);
  }
  cellos_sync(0, 0);
  if (mine == 0) printf("all done\n");
  return 0;
}
