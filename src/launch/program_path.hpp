// SPDX-License-Identifier: MIT
// Where a program is that a command line names.
#pragma once

#include <string>
#include <string_view>

namespace aplib::launch {

/// With a slash: that file; else a file of that name in the current folder, then in those of `search` (PATH's form). In
/// each place also with .so and .cell behind it. It need not be executable, for programs are read. Throws
/// Error(bad_option) that says where it was looked for, or what is there instead.
[[nodiscard]] std::string find_program(const std::string& name, std::string_view search);

}  // namespace aplib::launch
