// SPDX-License-Identifier: MIT
#include "launch/cluster/host_names.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"

namespace aplib::launch {
namespace {

constexpr std::size_t digits_max = 9;

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  ///< As "01" is written; 0: no leading zeros.
};

std::optional<Range> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view from = text.substr(0, dash);
  const std::string_view to = dash == text.npos ? from : text.substr(dash + 1);
  if (from.size() > digits_max || to.size() > digits_max) return std::nullopt;
  const auto first = text::parse_number(from);
  const auto last = text::parse_number(to);
  if (!first || !last || *first > *last) return std::nullopt;
  return Range{*first, *last, from.front() == '0' ? from.size() : 0};
}

}  // namespace

std::optional<std::vector<std::string>> expand_names(std::string_view pattern, std::size_t max) {
  const std::size_t open = pattern.find('[');
  const std::size_t close = pattern.find(']');
  if (open == pattern.npos && close == pattern.npos) {
    if (pattern.find(',') != pattern.npos) return std::nullopt;
    return std::vector{std::string(pattern)};
  }
  if (open == pattern.npos || close == pattern.npos || close < open) return std::nullopt;
  const std::string_view before = pattern.substr(0, open);
  const std::string_view behind = pattern.substr(close + 1);
  if (behind.find_first_of("[],") != behind.npos || before.find(',') != before.npos) return std::nullopt;
  const std::string_view list = pattern.substr(open + 1, close - open - 1);

  std::vector<std::string> names;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const auto range = parse_range(list.substr(at, end - at));
    if (!range || range->last - range->first >= max - names.size()) return std::nullopt;
    for (std::uint64_t number = range->first; number <= range->last; ++number) {
      names.push_back(fmt::format("{}{:0{}}{}", before, number, range->width, behind));
    }
    at = end + 1;
  }
  return names;
}

}  // namespace aplib::launch
