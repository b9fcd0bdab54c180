// SPDX-License-Identifier: MIT
// Runs other programs for a benchmark.
#pragma once

#include <string>
#include <vector>

namespace apbench {

/// Path of the program `name` in the folder of this one.
[[nodiscard]] std::string beside(const std::string& name);

/// What the command `arguments` prints on stdout. Throws, with its stderr, when it cannot be started or fails.
[[nodiscard]] std::string output_of(const std::vector<std::string>& arguments);

}  // namespace apbench
