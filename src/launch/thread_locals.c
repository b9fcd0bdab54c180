/* SPDX-License-Identifier: MIT */
/* Below the thread pointer, where the code of executables expects thread-locals of their own. Every thread pays for it,
 * and few programs need more than some hundred bytes. Common: linkers put it behind all others, next to the thread
 * pointer. */
#include "launch/thread_locals.h"

__attribute__((common, aligned(64))) __thread char aplib_thread_locals[aplib_thread_locals_bytes];
