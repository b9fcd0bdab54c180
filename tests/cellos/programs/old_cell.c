/* SPDX-License-Identifier: MIT */
/* The cell half of old_host.c. */
#include <ccell.c7.h>
#include <unistd.h>

double dgettime();

main(argc, argv) int argc;
char** argv;
{
  int words[2];
  words[0] = getcid();
  words[1] = gettid() == 30 && argc == 1 && argv[1] == 0 && dgettime() > 0;
  sync(0, 0);
  h_send(0, words, sizeof words);
  return 0;
}
