// SPDX-License-Identifier: MIT
// Setlocale, per instance by way of uselocale.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> locale_bindings() { return {}; }

}  // namespace aplib::loader::libc
