// SPDX-License-Identifier: MIT
// Stdin, stdout and stderr of an instance, and the functions that use them without naming them.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> stdio_bindings() { return {}; }

}  // namespace aplib::loader::libc
