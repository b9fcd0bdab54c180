// SPDX-License-Identifier: MIT
// Fork, exec, system, popen, getpid: what a program in a shared process can and cannot do.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> process_bindings() { return {}; }

}  // namespace aplib::loader::libc
