// SPDX-License-Identifier: MIT
// Exit, atexit, abort and their kin: end a program, not the process.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> exit_bindings() { return {}; }

}  // namespace aplib::loader::libc
