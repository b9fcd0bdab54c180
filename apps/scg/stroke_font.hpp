// SPDX-License-Identifier: MIT
// A small font of our own, made of pen strokes, so that pictures carry text at any size without font files.
#pragma once

#include <string_view>
#include <vector>

namespace scg {

struct FontPoint {
  double x = 0;
  double y = 0;
};

/// A line the pen draws without lifting.
using Stroke = std::vector<FontPoint>;

/// Height of capitals and digits over the base line, in the font's units; small letters are two thirds of it.
inline constexpr double font_cap_height = 9;

/// Width that `text` takes, in the font's units.
[[nodiscard]] double text_width(std::string_view text);

/// The strokes of `text`, starting at (0, 0) on the base line, y upwards, in the font's units.
[[nodiscard]] std::vector<Stroke> text_strokes(std::string_view text);

/// True when every character has a drawing of its own; others are drawn as boxes.
[[nodiscard]] bool can_draw(std::string_view text);

}  // namespace scg
