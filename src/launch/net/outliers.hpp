// SPDX-License-Identifier: MIT
// Which hosts and paths of a Matrix are much slower than the others, and what holds them back.
#pragma once

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

}  // namespace aplib::launch::net
