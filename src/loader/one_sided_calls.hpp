// SPDX-License-Identifier: MIT
// What a program calls that names memory of other cells by its own addresses. It needs its heap in the slot.
#pragma once

#include <string_view>

namespace aplib::loader {

/// `symbol`: as it stands in the program's file.
bool is_one_sided_call(std::string_view symbol) noexcept;

}  // namespace aplib::loader
