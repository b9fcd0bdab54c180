// SPDX-License-Identifier: MIT
// Rand, random, drand48 and their kin: a sequence per instance.
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {

std::span<const Binding> random_bindings() { return {}; }

}  // namespace aplib::loader::libc
