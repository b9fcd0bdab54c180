// SPDX-License-Identifier: MIT
// Working directory and umask, per instance.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> files_bindings() { return {}; }

}  // namespace aplib::loader::libc
