/* SPDX-License-Identifier: MIT */
/* A historical program in one file: the host asks, two cells answer. */
#include <aplib/cellos.h>
#include <stdio.h>

int host_main(int argc, char** argv) {
  int sum = 0;
  (void)argc;
  cconfxy(2, 1);
  ccreat(argv[0], 0, NULL);
  for (int cid = 0; cid < 2; ++cid) {
    int answer = 0;
    l_arecv(cid, 0, 0);
    readmsg(&answer, sizeof answer);
    sum += answer;
  }
  printf("host: %d cells answered, sum %d\n", getncel(), sum);
  return 0;
}

void cell_main(void) {
  int answer = getcid() + 1;
  h_send(0, &answer, sizeof answer);
}
