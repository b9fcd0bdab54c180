// SPDX-License-Identifier: MIT
// Signal, sigaction, raise, alarm: handlers per instance.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> signals_bindings() { return {}; }

}  // namespace aplib::loader::libc
