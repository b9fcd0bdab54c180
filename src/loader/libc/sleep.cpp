// SPDX-License-Identifier: MIT
// Sleep and its kin let other tasks run.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> sleep_bindings() { return {}; }

}  // namespace aplib::loader::libc
