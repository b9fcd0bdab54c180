/* SPDX-License-Identifier: MIT */
/* A file with a bit of everything that the loader reads. */
#include <stdio.h>
#include <stdlib.h>

__thread int own = 1;
static __thread char zeros[40];
int table[20] = {1};
int* pointers[20] = {[0 ... 19] = &table[3]};

__attribute__((constructor)) static void begin(void) { own = 2; }
__attribute__((destructor)) static void end(void) { own = 3; }

int call(const char* text) { return puts(text) + own + zeros[3] + *pointers[2] + (malloc(3) != 0); }

int main(int argc, char** argv) { return argc > 5 ? call(argv[1]) : 0; }
