/* SPDX-License-Identifier: MIT */
#include <aplib/cellos.h>
#include <stdio.h>

int main(void) {
  int mine = 0;
  int sum = 0;
  for (int i = 0; i < 1000; ++i) {
    int one = getcid() * (i % 2);
    xy_isum(one, &sum);
    mine += sum;
  }
  if (getcid() == 0) printf("%d cells: %d\n", getncel(), mine);
  return 0;
}
