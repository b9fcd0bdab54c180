/* SPDX-License-Identifier: MIT */
/* Cell 0 says "ready", and then what it reads, line by line. At the end all say which cell they are. */
#include <aplib/cellos.h>
#include <stdio.h>

int main(void) {
  char line[256];
  if (getcid() == 0) {
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) printf("heard %s", line);
  }
  cellos_sync(0, 0);
  printf("cell %d\n", getcid());
  return 0;
}
