/* SPDX-License-Identifier: MIT */
/* Cells that pass messages in a ring, and check them: ring ROUNDS BYTES. */
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  const long rounds = argc > 1 ? atol(argv[1]) : 1;
  const int bytes = argc > 2 ? atoi(argv[2]) : 8;
  const int cells = getncel(), mine = getcid();
  const int left = (mine + cells - 1) % cells;
  char* body = malloc(bytes);
  for (long round = 0; round < rounds; ++round) {
    memset(body, mine + (int)round, bytes);
    l_asend((mine + 1) % cells, 0, 1, body, bytes);
    const char* got = l_arecv(left, 0, 1);
    if (getmlen() != bytes || got[0] != (char)(left + round) || got[bytes - 1] != (char)(left + round)) {
      printf("cell %d: wrong bytes from %d\n", mine, left);
      return 1;
    }
  }
  int sum = 0;
  xy_isum(1, &sum);
  if (mine == 0) printf("%d cells: all done\n", sum);
  return 0;
}
