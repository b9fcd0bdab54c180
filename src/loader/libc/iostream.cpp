// SPDX-License-Identifier: MIT
// Std::cout and its kin, per instance.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> iostream_bindings() { return {}; }

}  // namespace aplib::loader::libc
