/* SPDX-License-Identifier: MIT */
/* The thread-locals that aprun lends to programs: lend_thread_locals() in src/kernel/programs.hpp. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#define APLIB_THREAD_LOCALS_BYTES 4096
extern __attribute__((visibility("hidden"))) __thread char aplib_thread_locals[APLIB_THREAD_LOCALS_BYTES];

#ifdef __cplusplus
}
#endif
