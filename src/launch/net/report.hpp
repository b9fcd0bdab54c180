// SPDX-License-Identifier: MIT
// A Matrix for people, for programs, and as a picture.
#pragma once

#include <string>

#include "launch/net/matrix.hpp"

namespace aplib::launch::net {

/// Up to so many hosts have a column each; of more, each has a line with the least, median and most.
inline constexpr std::uint32_t columns_max = 16;

/// Round trips and rates, then outliers, then what was not measured and why.
[[nodiscard]] std::string text_report(const Matrix& matrix);

/// One object; docs/apctl.md describes it. `file`: the cluster file. `seconds`: of each stream.
[[nodiscard]] std::string json_report(const Matrix& matrix, const std::string& file, double seconds);

/// What gnuplot is told to draw the rates as a map in colours, with round trips, as PNG into the file `path`.
[[nodiscard]] std::string picture_script(const Matrix& matrix, const std::string& path);

}  // namespace aplib::launch::net
