/* SPDX-License-Identifier: MIT */
/* The thread-locals that aprun lends to programs: lend_thread_locals() in src/kernel/programs.hpp. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { aplib_thread_locals_bytes = 4096 };
extern __attribute__((visibility("hidden"))) __thread char aplib_thread_locals[aplib_thread_locals_bytes];

#ifdef __cplusplus
}
#endif
