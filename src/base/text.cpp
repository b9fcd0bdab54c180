// SPDX-License-Identifier: MIT
#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <vector>

namespace aplib::text {
namespace {

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// Largest first, so that printing finds the shortest text.
constexpr std::array<Unit, 3> size_units{{{"g", 1ULL << 30}, {"m", 1ULL << 20}, {"k", 1ULL << 10}}};
constexpr std::array<Unit, 4> time_units{{{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}}};

std::optional<std::uint64_t> multiply(std::string_view digits, std::uint64_t factor, std::uint64_t limit) {
  const auto number = parse_number(digits);
  if (!number || *number > limit / factor) return std::nullopt;
  return *number * factor;
}

/// The number of bytes of the sequence of UTF-8 at the beginning. 0: it is none.
std::size_t sequence_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t count = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (first >= 0xf5 || count == 0 || text.size() < count) return 0;
  for (std::size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool no_character = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || no_character ? 0 : count;
}

}  // namespace

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  constexpr auto limit = std::numeric_limits<std::uint64_t>::max();
  for (const Unit& unit : size_units) {
    if (!text.empty() && lower(text.back()) == unit.name[0]) {
      return multiply(text.substr(0, text.size() - 1), unit.factor, limit);
    }
  }
  return parse_number(text);
}

std::string print_size(std::uint64_t bytes) {
  for (const Unit& unit : size_units) {
    if (bytes != 0 && bytes % unit.factor == 0) return fmt::format("{}{}", bytes / unit.factor, unit.name);
  }
  return fmt::format("{}", bytes);
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  if (text == "0") return std::chrono::nanoseconds{0};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  for (const Unit& unit : time_units) {
    if (!equal_ignoring_case(text.substr(digits), unit.name)) continue;
    const auto limit = static_cast<std::uint64_t>(std::chrono::nanoseconds::max().count());
    const auto count = multiply(text.substr(0, digits), unit.factor, limit);
    if (!count) return std::nullopt;
    return std::chrono::nanoseconds{static_cast<std::int64_t>(*count)};
  }
  return std::nullopt;
}

std::string print_duration(std::chrono::nanoseconds time) {
  const std::int64_t count = time.count();
  if (count == 0) return "0";
  for (const Unit& unit : time_units) {
    const auto factor = static_cast<std::int64_t>(unit.factor);
    if (count % factor == 0) return fmt::format("{}{}", count / factor, unit.name);
  }
  return fmt::format("{}ns", count);
}

std::optional<bool> parse_switch(std::string_view text) {
  for (std::string_view word : {"on", "yes", "true", "1"}) {
    if (equal_ignoring_case(text, word)) return true;
  }
  for (std::string_view word : {"off", "no", "false", "0"}) {
    if (equal_ignoring_case(text, word)) return false;
  }
  return std::nullopt;
}

std::string print_switch(bool value) { return value ? "on" : "off"; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Row i of the classic table, and the two rows above it (a swap looks two rows back).
  std::vector<std::size_t> row(b.size() + 1), above(b.size() + 1), above2(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(above2, above);
    std::swap(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], above2[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<std::string_view> nearest(std::string_view text, std::span<const std::string_view> candidates) {
  std::optional<std::string_view> best;
  std::size_t best_distance = 0;
  for (std::string_view candidate : candidates) {
    // A name that must change by more than a third was not meant; a prefix or an extension ("stack" for
    // "stack-size") was.
    const bool part =
        std::min(text.size(), candidate.size()) >= 3 && (candidate.starts_with(text) || text.starts_with(candidate));
    const std::size_t distance = edit_distance(text, candidate);
    const std::size_t tolerated = std::max<std::size_t>(1, std::max(text.size(), candidate.size()) / 3);
    const bool shares_nothing = distance >= std::max(text.size(), candidate.size());  // as two letters do
    if (!part && (distance > tolerated || shares_nothing)) continue;
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string json_text(std::string_view text) {
  constexpr std::string_view short_ones = "\"\\\n\t\r\b\f";
  constexpr std::string_view letters = "\"\\ntrbf";
  std::string json;
  json.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t count = sequence_bytes(text.substr(i));
    const char c = text[i];
    if (count == 0) {
      json += "\\ufffd";
    } else if (const std::size_t known = short_ones.find(c); known != short_ones.npos) {
      json += '\\';
      json += letters[known];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      json += text.substr(i, count);
    }
    i += std::max<std::size_t>(count, 1);
  }
  return json;
}

std::string json_string(std::string_view text) { return '"' + json_text(text) + '"'; }

std::string join(std::span<const std::string_view> words) { return fmt::format("{}", fmt::join(words, ", ")); }

}  // namespace aplib::text
