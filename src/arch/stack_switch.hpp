// SPDX-License-Identifier: MIT
// What src/task, which switches stacks by Boost.Context, needs to know of the machine.
//   jump(to, data)             as jump_fcontext()
//   parked_words_before_entry  how many registers of a parked flow lie before the one that make_fcontext() leaves the
//                              function to be run in; src/kernel/aplib_gdb.py has their names and order
#pragma once

#if defined(__x86_64__)
#include "arch/x86_64/stack_switch.hpp"
#else
#error "APlib does not know this machine yet: add a folder beside src/arch/x86_64 (ARCHITECTURE.md, Another machine)"
#endif
