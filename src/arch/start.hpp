// SPDX-License-Identifier: MIT
// How a program enters and leaves the kernel without a C library: for the start stub (src/compile/start) alone,
// which is one source file. It defines aplib_start(stack), and APLIB_START_ENTRY stands once in that file.
//   system_call(number, a, b, c)  the result, or a negative errno
//   call_write, call_execve, call_exit_group
//   APLIB_START_ENTRY             _start: calls aplib_start with the stack pointer the kernel entered with (at argc)
#pragma once

#if defined(__x86_64__)
#include "arch/x86_64/start.hpp"
#else
#error "APlib does not know this machine yet: add a folder beside src/arch/x86_64 (ARCHITECTURE.md, Another machine)"
#endif
