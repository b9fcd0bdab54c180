/* SPDX-License-Identifier: MIT */
/* exit() in the program: in a task it ends that task only (source: CellOS, UtiLisp's quit on a cell); elsewhere it is
 * libc's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "aplib/cellos.h"

/* Visible: the program's own shared libraries must get this one too. */
__attribute__((visibility("default"))) void exit(int status) {
  void (*libc_exit)(int);
  cellos_exit(status); /* does not return in a task */
  *(void**)&libc_exit = dlsym(RTLD_NEXT, "exit");
  if (libc_exit != NULL) libc_exit(status);
  _Exit(status); /* a program without libc's exit further on: statically linked */
}
