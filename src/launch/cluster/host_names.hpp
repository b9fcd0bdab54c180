// SPDX-License-Identifier: MIT
// Names of several hosts in one text: "ws[01-16,20]".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::launch {

/// The names that `pattern` stands for, in its order; a name without brackets is itself. Numbers keep the width that the first one of a range is written with. Nothing: brackets that make no
/// sense, or more than `max` names.
[[nodiscard]] std::optional<std::vector<std::string>> expand_names(std::string_view pattern, std::size_t max);

}  // namespace aplib::launch
