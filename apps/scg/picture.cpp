// SPDX-License-Identifier: MIT
#include "picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace scg {

std::vector<double> round_ticks(double low, double high, int wanted) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i <= high / step + 1e-9; ++i) ticks.push_back(i * step + 0.0);
  return ticks;
}

namespace {

constexpr int margin_left = 64;
constexpr int margin_top = 100;
constexpr int margin_bottom = 52;
constexpr int bar_gap = 28;
constexpr int bar_width = 26;
constexpr int margin_right = bar_gap + bar_width + 110;
constexpr double text_size = 12;
constexpr Color grey{90, 90, 90};

/// Values to colours: which map, and from where to where.
struct Scale {
  double low;
  double high;
  bool both_signs;

  explicit Scale(const std::vector<float>& samples) {
    const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
    low = *least;
    high = *most;
    // A sign that is only rounding does not make a picture of both signs.
    both_signs = low < -0.01 * high && high > -0.01 * low;
    if (!both_signs && low > 0 && low < 0.5 * high) low = 0;
    if (!both_signs && high < 0 && high > 0.5 * low) high = 0;
    if (!(high > low)) high = low + 1;
  }
  [[nodiscard]] Color color(double value) const {
    if (both_signs) return diverging_color(value / std::max(high, -low));
    return sequential_color((value - low) / (high - low));
  }
};

/// Number of ticks at or below the value: it changes where a contour line passes.
std::ptrdiff_t band(const std::vector<double>& ticks, double value) {
  return std::upper_bound(ticks.begin(), ticks.end(), value) - ticks.begin();
}

void draw_square(Canvas& canvas, const std::vector<float>& samples, int side, const Scale& scale,
                 const std::vector<double>& ticks) {
  const auto sample = [&](int i, int j) {  // j from the top
    return static_cast<double>(
        samples[static_cast<std::size_t>(side - 1 - j) * static_cast<std::size_t>(side) + static_cast<std::size_t>(i)]);
  };
  for (int j = 0; j < side; ++j) {
    for (int i = 0; i < side; ++i) {
      const double value = sample(i, j);
      const std::ptrdiff_t here = band(ticks, value);
      const bool contour = (i + 1 < side && band(ticks, sample(i + 1, j)) != here) ||
                           (j + 1 < side && band(ticks, sample(i, j + 1)) != here);
      const Color color = scale.color(value);
      const Color line = lightness(color) > 0.5 ? black : white;
      canvas.set(margin_left + i, margin_top + j, contour ? mix(color, line, 0.3) : color);
    }
  }
  canvas.frame(margin_left, margin_top, side, side, black);
}

void draw_axes(Canvas& canvas, int side) {
  for (const double t : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const int along = static_cast<int>(std::lround(t * (side - 1)));
    const int x = margin_left + along;
    const int y = margin_top + side - 1 - along;
    const std::string label = fmt::format("{:g}", t);
    canvas.fill(x, margin_top + side + 1, 1, 5, black);
    canvas.text(x + 0.5, margin_top + side + 22, text_size, label, black, Align::center);
    canvas.fill(margin_left - 6, y, 5, 1, black);
    canvas.text(margin_left - 10, y + text_size / 2, text_size, label, black, Align::right);
  }
  canvas.text(margin_left + side * 0.625, margin_top + side + 22, text_size, "x", grey, Align::center);
  canvas.text(margin_left - 16, margin_top + side * 0.375 + text_size / 2, text_size, "y", grey, Align::right);
}

void draw_scale(Canvas& canvas, int side, const Scale& scale, const std::vector<double>& ticks) {
  const int left = margin_left + side + bar_gap;
  for (int j = 0; j < side; ++j) {
    const double value = std::lerp(scale.high, scale.low, (j + 0.5) / side);
    canvas.fill(left, margin_top + j, bar_width, 1, scale.color(value));
  }
  canvas.frame(left, margin_top, bar_width, side, black);
  for (const double tick : ticks) {
    const int y =
        margin_top + static_cast<int>(std::lround((scale.high - tick) / (scale.high - scale.low) * (side - 1)));
    canvas.fill(left + bar_width + 1, y, 5, 1, black);
    canvas.text(left + bar_width + 10, y + text_size / 2, text_size, fmt::format("{:.4g}", tick), black);
  }
  canvas.text(left + bar_width / 2.0, margin_top - 12, text_size, "u", grey, Align::center);
}

}  // namespace

Canvas draw_picture(const std::vector<float>& samples, int side, const Caption& caption) {
  Canvas canvas(margin_left + side + margin_right, margin_top + side + margin_bottom);
  const Scale scale(samples);
  const std::vector<double> ticks = round_ticks(scale.low, scale.high, 8);
  draw_square(canvas, samples, side, scale, ticks);
  draw_axes(canvas, side);
  draw_scale(canvas, side, scale, ticks);
  canvas.text(margin_left, 34, 17, caption.title, black);
  canvas.text(margin_left, 60, text_size, caption.subtitle, grey);
  return canvas;
}

}  // namespace scg
