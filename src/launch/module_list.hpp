// SPDX-License-Identifier: MIT
// What aprun --list-modules prints.
#pragma once

#include <span>
#include <string>

#include "comm/kinds.hpp"

namespace aplib::launch {

/// A table of modules, the best first: what each can do, and why it cannot be used with these settings. Behind it files that were refused, with the reasons.
[[nodiscard]] std::string module_table(std::span<const comm::FoundModule> found, const comm::PortSettings& settings);

}  // namespace aplib::launch
