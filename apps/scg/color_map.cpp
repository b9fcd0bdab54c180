// SPDX-License-Identifier: MIT
#include "color_map.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

namespace scg {

namespace {

/// Lightness, colourfulness, hue in degrees.
struct Lch {
  double l;
  double c;
  double h;
};

double encode(double linear) {  // sRGB transfer function
  const double v = std::clamp(linear, 0.0, 1.0);
  return v <= 0.0031308 ? 12.92 * v : 1.055 * std::pow(v, 1 / 2.4) - 0.055;
}

double decode(std::uint8_t byte) {
  const double v = byte / 255.0;
  return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
}

std::uint8_t to_byte(double v) { return static_cast<std::uint8_t>(std::lround(v * 255)); }

Color to_color(Lch lch) {
  const double h = lch.h * std::numbers::pi / 180;
  const double a = lch.c * std::cos(h);
  const double b = lch.c * std::sin(h);
  // OKLab to linear sRGB, by the matrices of its definition.
  const double l = std::pow(lch.l + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double m = std::pow(lch.l - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double s = std::pow(lch.l - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {to_byte(encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s)),
          to_byte(encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s)),
          to_byte(encode(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s))};
}

/// Straight between stops that are equally far apart.
template <std::size_t count>
Lch between(const Lch (&stops)[count], double t) {
  const double place = std::clamp(t, 0.0, 1.0) * (count - 1);
  const auto i = std::min(static_cast<std::size_t>(place), count - 2);
  const double f = place - static_cast<double>(i);
  const Lch& from = stops[i];
  const Lch& to = stops[i + 1];
  return {std::lerp(from.l, to.l, f), std::lerp(from.c, to.c, f), std::lerp(from.h, to.h, f)};
}

}  // namespace

Color sequential_color(double t) {
  static constexpr Lch stops[] = {{0.24, 0.09, 310},  {0.38, 0.13, 280}, {0.52, 0.10, 240},
                                  {0.66, 0.105, 190}, {0.80, 0.16, 145}, {0.94, 0.14, 105}};
  return to_color(between(stops, std::isfinite(t) ? t : 0));
}

Color diverging_color(double t) {
  static constexpr Lch cold[] = {
      {0.97, 0.005, 250}, {0.81, 0.07, 250}, {0.64, 0.13, 255}, {0.46, 0.15, 262}, {0.30, 0.10, 268}};
  static constexpr Lch warm[] = {
      {0.97, 0.005, 60}, {0.81, 0.09, 50}, {0.64, 0.17, 35}, {0.46, 0.16, 27}, {0.30, 0.10, 22}};
  if (!std::isfinite(t)) t = 0;
  return to_color(t < 0 ? between(cold, -t) : between(warm, t));
}

Color mix(Color under, Color over, double share) {
  const auto channel = [&](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(
        std::lround(std::lerp(double{1} * from, double{1} * to, std::clamp(share, 0.0, 1.0))));
  };
  return {channel(under.red, over.red), channel(under.green, over.green), channel(under.blue, over.blue)};
}

double lightness(Color color) {
  const double luminance = 0.2126 * decode(color.red) + 0.7152 * decode(color.green) + 0.0722 * decode(color.blue);
  return std::cbrt(luminance);
}

}  // namespace scg
