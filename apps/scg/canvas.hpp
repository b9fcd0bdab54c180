// SPDX-License-Identifier: MIT
// A picture in memory, drawn on by pixels, boxes and text, and written as PNG.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "color_map.hpp"

namespace scg {

enum class Align { left, center, right };

/// Pixel (0, 0) is at the top left.
class Canvas {
 public:
  Canvas(int width, int height, Color background = white);

  [[nodiscard]] int width() const { return width_; }
  [[nodiscard]] int height() const { return height_; }

  /// A pixel; what lies outside the picture is ignored when set, and white when read.
  void set(int x, int y, Color color);
  [[nodiscard]] Color at(int x, int y) const;

  /// Filled, `width` x `height` pixels from (x, y).
  void fill(int x, int y, int width, int height, Color color);

  /// One pixel wide, just outside the given box.
  void frame(int x, int y, int width, int height, Color color);

  /// Text with its base line at y; capitals are `size` pixels high; x is where `align` says.
  void text(double x, double y, double size, std::string_view text, Color color, Align align = Align::left);

  /// Throws std::runtime_error naming the file and the cause.
  void write_png(const std::string& path) const;

 private:
  int width_;
  int height_;
  std::vector<Color> pixels_;
};

}  // namespace scg
