// SPDX-License-Identifier: MIT
// Tzset and the variables behind localtime.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> time_zone_bindings() { return {}; }

}  // namespace aplib::loader::libc
