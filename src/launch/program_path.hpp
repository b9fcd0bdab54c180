// SPDX-License-Identifier: MIT
// Finds the program that a command line names.
#pragma once

#include <string>
#include <string_view>

namespace aplib::launch {

/// A name with a slash is a path. Any other is looked for in the current folder, then in those of `search` (in PATH's
/// form), in each place also with .so and .cell appended. The file need not be executable, because programs are read.
/// Throws Error(bad_option), which says where it was looked for, or what is there instead.
[[nodiscard]] std::string find_program(const std::string& name, std::string_view search);

/// Their programs load MPI by themselves, and they keep values of threads, which cells that share threads mix up.
[[nodiscard]] bool is_interpreter(const std::string& file);

}  // namespace aplib::launch
