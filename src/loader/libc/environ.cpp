// SPDX-License-Identifier: MIT
// Getenv, setenv and environ, per instance.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> environ_bindings() { return {}; }

}  // namespace aplib::loader::libc
