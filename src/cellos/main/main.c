/* SPDX-License-Identifier: MIT */
/* main() of a program that has cell_main, and host_main if it has a host half. Options come from APLIB_* variables,
 * so that the program's arguments reach host_main untouched. */
#include <stddef.h>
#include <stdlib.h>

#include "aplib/cellos.h"

/* Weak: the program may lack either. cell_main takes nothing; the arguments are for a `main` that ccell.c7.h
 * renamed. */
extern int host_main(int argc, char** argv) __attribute__((weak));
extern void cell_main(int argc, char** argv) __attribute__((weak));

static char* program_name;

static void start_cell(void) {
  char* argv[2];
  argv[0] = program_name;
  argv[1] = NULL;
  cell_main(1, argv);
}

int main(int argc, char** argv) {
  program_name = argv[0];
  /* exit() rather than return: it makes sure that the linker takes ours. */
  exit(cellos_run(host_main, cell_main != NULL ? start_cell : NULL, argc, argv));
}
