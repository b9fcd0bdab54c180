// SPDX-License-Identifier: MIT
// Threads that a program makes itself.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> threads_bindings() { return {}; }

}  // namespace aplib::loader::libc
