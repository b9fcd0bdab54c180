/* SPDX-License-Identifier: MIT */
/* Which limit on its stack a program sees, and whether it sees what aprun told itself. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int main(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0) return 1;
  printf("%s, %s variable of ours\n", limit.rlim_cur == RLIM_INFINITY ? "unlimited" : "limited",
         getenv("AP_STACK_LIMIT") == NULL && getenv("AP_GLIBC_TUNABLES") == NULL ? "no" : "a");
  return 0;
}
