// SPDX-License-Identifier: MIT
// Runs other programs for a benchmark.
#pragma once

#include <string>
#include <vector>

namespace apbench {

/// Path of the program `name` in the folder of this one.
[[nodiscard]] std::string beside(const std::string& name);

/// What the command `arguments` prints on stdout. Throws, with its stderr, when it cannot be started or fails: with
/// another status than 0 and `accepted`.
[[nodiscard]] std::string output_of(const std::vector<std::string>& arguments, int accepted = 0);

}  // namespace apbench
