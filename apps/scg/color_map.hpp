// SPDX-License-Identifier: MIT
// Numbers to colours. The maps are paths through the OKLab colour space (Ottosson 2020), in which equal distances
// look equal: lightness changes at a constant rate along them, so no value stands out for its colour's sake, and they
// survive grey printing.
#pragma once

#include <cstdint>

namespace scg {

struct Color {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  friend bool operator==(Color, Color) = default;
};

inline constexpr Color black{0, 0, 0};
inline constexpr Color white{255, 255, 255};

/// `t` from 0 to 1: dark violet over blue and green to light yellow. For values of one sign.
[[nodiscard]] Color sequential_color(double t);

/// `t` from -1 to 1: blue over near white (0) to red. For values of both signs.
[[nodiscard]] Color diverging_color(double t);

/// `share` of `over`, the rest of `under`.
[[nodiscard]] Color mix(Color under, Color over, double share);

/// Perceived lightness, 0 (black) to 1 (white).
[[nodiscard]] double lightness(Color color);

}  // namespace scg
