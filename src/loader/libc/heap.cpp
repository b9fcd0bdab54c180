// SPDX-License-Identifier: MIT
// Malloc and its kin, counted per instance when asked.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> heap_bindings() { return {}; }

}  // namespace aplib::loader::libc
