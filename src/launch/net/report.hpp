// SPDX-License-Identifier: MIT
// A Matrix for people, for programs, and as a picture; and which of its hosts and paths are much slower than the
// others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/net/matrix.hpp"

namespace aplib::launch::net {

/// Below this share of what the others have, a rate is an outlier.
inline constexpr double outlier_share = 1.0 / 3;

/// A line for each: "nagoya: 0.5 to 6.7 MB/s both ways, the others 17 to 112: its own link limits". A host is one if
/// the best of its rates is far below the median of the others' best ones: where it is fast with anybody, its own link
/// is not to blame. A path between other hosts is one if both of them are much faster with others. Needs three hosts.
[[nodiscard]] std::vector<std::string> find_outliers(const Matrix& matrix);

/// "6.7", "112": MB/s.
[[nodiscard]] std::string rate_text(double bytes_per_second);

/// Up to so many hosts have a column each; of more, each has a line with the least, median and most.
inline constexpr std::uint32_t columns_max = 16;

/// Round trips and rates, then outliers, then what was not measured and why.
[[nodiscard]] std::string text_report(const Matrix& matrix);

/// One object; docs/apctl.md describes it. `file`: the cluster file. `seconds`: of each stream.
[[nodiscard]] std::string json_report(const Matrix& matrix, const std::string& file, double seconds);

/// What gnuplot is told to draw the rates as a map in colours, with round trips, as PNG into the file `path`.
[[nodiscard]] std::string picture_script(const Matrix& matrix, const std::string& path);

}  // namespace aplib::launch::net
