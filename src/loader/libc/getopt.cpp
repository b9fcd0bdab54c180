// SPDX-License-Identifier: MIT
// Getopt, getopt_long and getopt_long_only with their variables, per instance.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> getopt_bindings() { return {}; }

}  // namespace aplib::loader::libc
