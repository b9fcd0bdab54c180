/* SPDX-License-Identifier: MIT */
/* The last cell takes memory without end, the others wait for it. */
#include <aplib/cellos.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  const int last = getncel() - 1;
  cellos_sync(0, 0);
  if (getcid() != last) l_arecv(last, 0, 1);
  for (;;) {
    char* piece = malloc(1 << 20);
    if (piece == NULL) return 1;
    memset(piece, 1, 1 << 20);
  }
}
