// SPDX-License-Identifier: MIT
// The picture of a solution: the unit square in colours, with axes, a colour scale with its numbers, and a title.
#pragma once

#include <string>
#include <vector>

#include "canvas.hpp"

namespace scg {

/// Size of the square in pixels, and so the number of samples a picture needs in each direction.
inline constexpr int picture_side = 640;

struct Caption {
  std::string title;     ///< Larger, on top.
  std::string subtitle;  ///< Below it.
};

/// `samples`: side x side values, row by row from the south. Values of both signs are shown blue and red around white
/// at 0; values of one sign from dark to light. Contour lines stand where the colour scale has its numbers.
[[nodiscard]] Canvas draw_picture(const std::vector<float>& samples, int side, const Caption& caption);

/// Round numbers from `low` to `high`, about `wanted` of them.
[[nodiscard]] std::vector<double> round_ticks(double low, double high, int wanted);

}  // namespace scg
