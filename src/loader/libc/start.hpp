// SPDX-License-Identifier: MIT
// Where executables begin. Nothing in their files says where main is. What does is the code at their entry, `_start`:
// it calls libc's __libc_start_main with the address of main, and never returns. Programs get ours, which notes the
// address and jumps back. So main is called, and left, as that of any other program.
#pragma once

#include "loader/program.hpp"

namespace aplib::loader::libc {

/// Main of an executable. `start`: Program::start(). Call from: the flow that will run main, inside until_exit().
int (*main_of(Instance& instance, Program::Definition start))(int, char**, char**);

}  // namespace aplib::loader::libc
