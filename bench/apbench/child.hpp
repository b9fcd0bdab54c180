// SPDX-License-Identifier: MIT
// Other programs that a benchmark runs.
#pragma once

#include <string>
#include <vector>

namespace apbench {

/// Path of the program `name` in the folder of this one.
[[nodiscard]] std::string beside(const std::string& name);

/// What `arguments` print on stdout. Throws when the program cannot be started or fails, with what it said on stderr.
[[nodiscard]] std::string output_of(const std::vector<std::string>& arguments);

}  // namespace apbench
