// SPDX-License-Identifier: MIT
// The tables that stdio's is made of.
#pragma once

#include <span>

#include "loader/binding.hpp"

namespace aplib::loader::libc {

std::span<const Binding> wide_stdio_bindings();
std::span<const Binding> descriptors_bindings();

}  // namespace aplib::loader::libc
