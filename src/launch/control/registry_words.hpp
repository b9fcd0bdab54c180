// SPDX-License-Identifier: MIT
// Lines of words between apctl and a running aprun: words are separated by blanks, and what is no plain character is written %XX.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::launch {

/// Without an end of line. Any bytes can stand in words, and words can be empty ("%").
[[nodiscard]] std::string join_words(const std::vector<std::string>& words);
/// Nothing: it was not made by join_words().
[[nodiscard]] std::optional<std::vector<std::string>> split_words(std::string_view line);

}  // namespace aplib::launch
