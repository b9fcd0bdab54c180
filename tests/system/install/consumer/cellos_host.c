/* SPDX-License-Identifier: MIT */
/* The host half of a historical program: two cells answer. */
#include <chost.c7.h>
#include <stdio.h>

int host_main(int argc, char** argv) {
  int sum = 0;
  int cid;
  (void)argc;
  cconfxy(2, 1);
  ccreat(argv[0], 0, NULL);
  for (cid = 0; cid < 2; ++cid) {
    int answer = 0;
    l_arecv(cid, 0, 0);
    readmsg(&answer, sizeof answer);
    sum += answer;
  }
  printf("host: %d cells answered, sum %d\n", getncel(), sum);
  return 0;
}
