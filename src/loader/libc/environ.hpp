// SPDX-License-Identifier: MIT
// An instance's environment, for those who read or change it on the instance's behalf.
#pragma once

#include <string_view>

#include "loader/libc/state.hpp"

namespace aplib::loader::libc {

/// The value of `name` in the block that the program sees as `environ`, or null. It lives as long as the instance,
/// unless the program itself replaced it. Call from: any flow of the instance, not while another thread of it
/// changes the environment.
char* find_variable(const LibcState& state, std::string_view name) noexcept;

/// "NAME=value" into the block; replaces. `entry` is copied. May throw std::bad_alloc.
void set_variable(LibcState& state, std::string_view entry);

}  // namespace aplib::loader::libc
