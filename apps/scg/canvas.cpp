// SPDX-License-Identifier: MIT
#include "canvas.hpp"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "stroke_font.hpp"

namespace scg {

Canvas::Canvas(int width, int height, Color background)
    : width_(width),
      height_(height),
      pixels_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height), background) {}

void Canvas::set(int x, int y, Color color) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  pixels_[static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) + static_cast<std::size_t>(x)] = color;
}

Color Canvas::at(int x, int y) const {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return white;
  return pixels_[static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) + static_cast<std::size_t>(x)];
}

void Canvas::fill(int x, int y, int width, int height, Color color) {
  for (int j = y; j < y + height; ++j) {
    for (int i = x; i < x + width; ++i) set(i, j, color);
  }
}

void Canvas::frame(int x, int y, int width, int height, Color color) {
  fill(x - 1, y - 1, width + 2, 1, color);
  fill(x - 1, y + height, width + 2, 1, color);
  fill(x - 1, y, 1, height, color);
  fill(x + width, y, 1, height, color);
}

namespace {

double distance(double x, double y, FontPoint from, FontPoint to) {
  const double dx = to.x - from.x;
  const double dy = to.y - from.y;
  const double length = dx * dx + dy * dy;
  const double t = length > 0 ? std::clamp(((x - from.x) * dx + (y - from.y) * dy) / length, 0.0, 1.0) : 0;
  return std::hypot(x - from.x - t * dx, y - from.y - t * dy);
}

}  // namespace

void Canvas::text(double x, double y, double size, std::string_view text, Color color, Align align) {
  const double scale = size / font_cap_height;
  const double width = text_width(text) * scale;
  const double left = align == Align::left ? x : align == Align::center ? x - width / 2 : x - width;
  const double radius = std::max(size * 0.075, 0.55);

  // How much of each pixel the pen covers: the nearest stroke decides, so that strokes that cross are not drawn twice.
  const int box_x = static_cast<int>(left) - 2;
  const int box_y = static_cast<int>(y - 1.2 * size) - 2;
  const int box_width = static_cast<int>(width) + 5;
  const int box_height = static_cast<int>(1.6 * size) + 5;
  std::vector<float> ink(static_cast<std::size_t>(box_width) * static_cast<std::size_t>(box_height));
  const auto draw = [&](FontPoint from, FontPoint to) {
    const double reach = radius + 1;
    const int first_x = std::max(static_cast<int>(std::min(from.x, to.x) - reach), box_x);
    const int last_x = std::min(static_cast<int>(std::max(from.x, to.x) + reach), box_x + box_width - 1);
    const int first_y = std::max(static_cast<int>(std::min(from.y, to.y) - reach), box_y);
    const int last_y = std::min(static_cast<int>(std::max(from.y, to.y) + reach), box_y + box_height - 1);
    for (int j = first_y; j <= last_y; ++j) {
      for (int i = first_x; i <= last_x; ++i) {
        const double cover = std::clamp(radius + 0.5 - distance(i + 0.5, j + 0.5, from, to), 0.0, 1.0);
        float& here = ink[static_cast<std::size_t>(j - box_y) * static_cast<std::size_t>(box_width) +
                          static_cast<std::size_t>(i - box_x)];
        here = std::max(here, static_cast<float>(cover));
      }
    }
  };
  for (const Stroke& stroke : text_strokes(text)) {
    for (std::size_t i = 1; i < stroke.size(); ++i) {
      draw({left + stroke[i - 1].x * scale, y - stroke[i - 1].y * scale},
           {left + stroke[i].x * scale, y - stroke[i].y * scale});
    }
  }
  for (int j = 0; j < box_height; ++j) {
    for (int i = 0; i < box_width; ++i) {
      const float cover =
          ink[static_cast<std::size_t>(j) * static_cast<std::size_t>(box_width) + static_cast<std::size_t>(i)];
      if (cover > 0) set(box_x + i, box_y + j, mix(at(box_x + i, box_y + j), color, cover));
    }
  }
}

void Canvas::write_png(const std::string& path) const {
  static_assert(sizeof(Color) == 3, "pixels are written as they lie in memory");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width_);
  image.height = static_cast<png_uint_32>(height_);
  image.format = PNG_FORMAT_RGB;
  errno = 0;
  if (png_image_write_to_file(&image, path.c_str(), 0, pixels_.data(), 0, nullptr) == 0) {
    const std::string cause = errno != 0 ? std::strerror(errno) : image.message;
    throw std::runtime_error(fmt::format("cannot write the picture \"{}\": {}", path, cause));
  }
}

}  // namespace scg
