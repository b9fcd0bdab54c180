// SPDX-License-Identifier: MIT
// The picture of a solution: the unit square in colours, with axes, a colour scale with numbers, and a title.
// Anti-Grain Geometry (libagg) draws letters and lines and mixes colours; libpng writes the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace scg {

struct Color {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  friend bool operator==(Color, Color) = default;
};

/// For values of one sign. `t` from 0 to 1 gives dark violet, through blue and green, to light yellow.
[[nodiscard]] Color sequential_color(double t);

/// For values of both signs. `t` from -1 to 1 gives blue, through near white at 0, to red.
[[nodiscard]] Color diverging_color(double t);

/// Pixels, row by row. Pixel (0, 0) is at the top left.
class Picture {
 public:
  Picture(int width, int height);  ///< White.

  [[nodiscard]] int width() const { return width_; }
  [[nodiscard]] int height() const { return height_; }
  [[nodiscard]] std::uint8_t* bytes() { return bytes_.data(); }  ///< Red, green, blue of each pixel.

  /// A pixel; white outside the picture.
  [[nodiscard]] Color at(int x, int y) const;

  /// Writes a PNG file (by OutputFile in report.hpp). Throws std::runtime_error, which names the file and the cause.
  void write_png(const std::string& path) const;

 private:
  int width_;
  int height_;
  std::vector<std::uint8_t> bytes_;
};

/// Size of the square in pixels, which is also the number of samples that a picture needs in each direction.
inline constexpr int picture_side = 640;

struct Caption {
  std::string title;     ///< Larger, on top.
  std::string subtitle;  ///< Below it.
};

/// Draws side x side values, row by row from the south. Values of both signs are blue and red around white at 0; values
/// of one sign go from dark to light. Contour lines are drawn at the numbers of the colour scale.
[[nodiscard]] Picture draw_picture(const std::vector<float>& samples, int side, const Caption& caption);

/// Round numbers from `low` to `high`, about `wanted` of them.
[[nodiscard]] std::vector<double> round_ticks(double low, double high, int wanted);

/// Width of the text in pixels if its capitals are 12 pixels high.
[[nodiscard]] double text_width(const std::string& text);

/// Whether the font has every character, that is, printable ASCII.
[[nodiscard]] bool can_draw(std::string_view text);

}  // namespace scg
