// SPDX-License-Identifier: MIT
// Text of values as people write them: sizes, times, switches, names with a typing mistake.
//
// Every parse_* takes the whole text (no surrounding blanks) and returns nothing when it is not of its form; limits
// are the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace aplib::text {

/// Decimal digits only, no sign; nothing when the number does not fit.
[[nodiscard]] std::optional<std::uint64_t> parse_number(std::string_view text);

/// Bytes: a number, or one with k, m or g (1024, 1024^2, 1024^3; either case).
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text);
/// The shortest text that parse_size() reads back to the same value: 262144 is "256k".
[[nodiscard]] std::string print_size(std::uint64_t bytes);

/// "0", or a whole number with ns, us, ms or s.
[[nodiscard]] std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);
/// In the largest unit that is exact: 20000 ns is "20us".
[[nodiscard]] std::string print_duration(std::chrono::nanoseconds time);

/// on, yes, true, 1 and off, no, false, 0; either case.
[[nodiscard]] std::optional<bool> parse_switch(std::string_view text);
[[nodiscard]] std::string print_switch(bool value);

/// ASCII only: names and keywords here are ASCII.
[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b);

/// How many letters must be inserted, removed, replaced or swapped with their neighbour to get from one to the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that `text` was probably meant to be; nothing when all are too far away for that. The first of
/// several equally near.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view text,
                                                      std::span<const std::string_view> candidates);

/// What stands between the quotation marks of a JSON string. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_text(std::string_view text);
/// With the quotation marks.
[[nodiscard]] std::string json_string(std::string_view text);

/// "a, b, c".
[[nodiscard]] std::string join(std::span<const std::string_view> words);

}  // namespace aplib::text
