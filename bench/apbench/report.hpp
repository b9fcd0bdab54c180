// SPDX-License-Identifier: MIT
// Results as text: JSON lines for tools, a table for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "measure.hpp"

namespace apbench {

/// {"bench":"latency","case":"two-processors","bytes":8,"value":71.8,"low":70.9,"high":74.0,"unit":"ns"}: these keys in
/// this order are an interface that other tools read.
[[nodiscard]] std::string json_line(const Result& result);

/// All results with a header, in aligned columns.
[[nodiscard]] std::string table(const std::vector<Result>& results);

/// "65536", "64k" and "64K", "1m" and "1M" (powers of 1024). Throws std::invalid_argument, whose text names the fault.
[[nodiscard]] std::size_t parse_bytes(std::string_view text);

/// Three or four significant digits without an exponent, as a JSON number.
[[nodiscard]] std::string number(double value);

/// To standard output, at once. Throws std::runtime_error where that does not take it.
void print(const std::string& text);

}  // namespace apbench
