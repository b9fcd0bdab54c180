// SPDX-License-Identifier: MIT
#include "picture.hpp"

#include <agg_basics.h>
#include <agg_conv_stroke.h>
#include <agg_gsv_text.h>
#include <agg_pixfmt_rgb.h>
#include <agg_rasterizer_scanline_aa.h>
#include <agg_renderer_base.h>
#include <agg_renderer_scanline.h>
#include <agg_rendering_buffer.h>
#include <agg_scanline_u.h>
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "report.hpp"

namespace scg {

namespace {

using Rgb = agg::rgba8;

const Rgb black(0, 0, 0);
const Rgb white(255, 255, 255);
const Rgb grey(90, 90, 90);

// The colour maps are paths through the OKLab colour space (Ottosson 2020), in which equal distances look equal.
// Lightness changes at a constant rate along them, so no value stands out because of its colour, and they survive
// printing in grey.
constexpr std::array sequential_stops{0x2c0e3e, 0x362061, 0x383585, 0x2d5394, 0x27709c, 0x0a8ca3,
                                      0x28a6a0, 0x39c297, 0x75d87a, 0xbee572, 0xf9f07b};
constexpr std::array diverging_stops{0x19285f, 0x213c84, 0x2552aa, 0x3a70c2, 0x528ed9, 0x78aae4,
                                     0x9fc5ed, 0xc9ddf3, 0xf8f4f2, 0xf5d3be, 0xf1b08c, 0xea8962,
                                     0xe05d3d, 0xbf412f, 0x9e2320, 0x79191c, 0x551015};

/// The colour at `t` from 0 to 1, between stops at equal distances.
template <std::size_t count>
Color between(const std::array<int, count>& stops, double t) {
  const double place = std::clamp(std::isfinite(t) ? t : 0, 0.0, 1.0) * (count - 1);
  const auto i = std::min(static_cast<std::size_t>(place), count - 2);
  const auto color = [](int rgb) { return agg::rgb8_packed(static_cast<unsigned>(rgb)); };
  const Rgb mixed = color(stops[i]).gradient(color(stops[i + 1]), place - static_cast<double>(i));
  return {mixed.r, mixed.g, mixed.b};
}

Rgb drawn(Color color) { return {color.red, color.green, color.blue}; }

}  // namespace

Color sequential_color(double t) { return between(sequential_stops, t); }

Color diverging_color(double t) { return between(diverging_stops, std::isfinite(t) ? (t + 1) / 2 : 0.5); }

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

bool can_draw(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

namespace {

constexpr int margin_left = 64;
constexpr int margin_top = 100;
constexpr int margin_bottom = 52;
constexpr int bar_gap = 28;
constexpr int bar_width = 26;
constexpr int margin_right = bar_gap + bar_width + 110;
constexpr double text_size = 12;

enum class Align { left, center, right };

/// Text in the font of the library, which is made of pen strokes and needs no font file. Its capitals are as high as
/// `size`.
struct Text {
  agg::gsv_text strokes;
  Text(const std::string& text, double size) {
    strokes.size(size);
    strokes.flip(true);  // y grows downwards in a picture
    strokes.text(text.c_str());
  }
};

/// The library's canvas over a Picture's bytes. It ignores what is drawn outside.
class Canvas {
 public:
  explicit Canvas(Picture& picture)
      : buffer_(picture.bytes(), static_cast<unsigned>(picture.width()), static_cast<unsigned>(picture.height()),
                3 * picture.width()),
        format_(buffer_),
        base_(format_) {}

  void pixel(int x, int y, Rgb color) { base_.copy_pixel(x, y, color); }
  void veil(int x, int y, Rgb color, double share) {
    base_.blend_pixel(x, y, color, static_cast<agg::cover_type>(std::lround(share * int{agg::cover_full})));
  }
  void fill(int x, int y, int width, int height, Rgb color) {
    base_.copy_bar(x, y, x + width - 1, y + height - 1, color);
  }

  /// A frame one pixel wide, just outside the given box.
  void frame(int x, int y, int width, int height, Rgb color) {
    fill(x - 1, y - 1, width + 2, 1, color);
    fill(x - 1, y + height, width + 2, 1, color);
    fill(x - 1, y, 1, height, color);
    fill(x + width, y, 1, height, color);
  }

  /// Text with its base line at y. `align` says which part of the text is at x.
  void text(double x, double y, double size, const std::string& words, Rgb color, Align align = Align::left) {
    Text text(words, size);
    const double width = text.strokes.text_width();
    text.strokes.start_point(align == Align::left ? x : align == Align::center ? x - width / 2 : x - width, y);
    agg::conv_stroke<agg::gsv_text> pen(text.strokes);
    pen.width(std::max(size * 0.13, 1.1));
    pen.line_cap(agg::round_cap);
    pen.line_join(agg::round_join);
    agg::rasterizer_scanline_aa<> rasterizer;
    rasterizer.clip_box(0, 0, buffer_.width(), buffer_.height());
    rasterizer.add_path(pen);
    agg::scanline_u8 scanline;
    agg::render_scanlines_aa_solid(rasterizer, scanline, base_, color);
  }

 private:
  agg::rendering_buffer buffer_;
  agg::pixfmt_rgb24 format_;
  agg::renderer_base<agg::pixfmt_rgb24> base_;
};

/// Maps values to colours.
struct Scale {
  double low;
  double high;
  bool both_signs;

  explicit Scale(const std::vector<float>& samples) {
    const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
    low = *least;
    high = *most;
    // A sign that comes only from rounding does not count.
    both_signs = low < -0.01 * high && high > -0.01 * low;
    if (!both_signs && low > 0 && low < 0.5 * high) low = 0;
    if (!both_signs && high < 0 && high > 0.5 * low) high = 0;
    if (!(high > low)) high = low + 1;
  }
  [[nodiscard]] Color color(double value) const {
    if (both_signs) return diverging_color(value / std::max(high, -low));
    return sequential_color((value - low) / (high - low));
  }
  /// Black or white, whichever stands out against that value's colour.
  [[nodiscard]] Rgb contour(double value) const {
    const bool light = both_signs ? std::abs(value) < 0.6 * std::max(high, -low) : value - low > 0.4 * (high - low);
    return light ? black : white;
  }
};

/// Number of ticks at or below the value. It changes at a contour line.
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
      canvas.pixel(margin_left + i, margin_top + j, drawn(scale.color(value)));
      if (contour) canvas.veil(margin_left + i, margin_top + j, scale.contour(value), 0.3);
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
    canvas.fill(left, margin_top + j, bar_width, 1, drawn(scale.color(value)));
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

double text_width(const std::string& text) { return text.empty() ? 0 : Text(text, text_size).strokes.text_width(); }

Picture draw_picture(const std::vector<float>& samples, int side, const Caption& caption) {
  Picture picture(margin_left + side + margin_right, margin_top + side + margin_bottom);
  Canvas canvas(picture);
  const Scale scale(samples);
  const std::vector<double> ticks = round_ticks(scale.low, scale.high, 8);
  draw_square(canvas, samples, side, scale, ticks);
  draw_axes(canvas, side);
  draw_scale(canvas, side, scale, ticks);
  canvas.text(margin_left, 34, 17, caption.title, black);
  canvas.text(margin_left, 60, text_size, caption.subtitle, grey);
  return picture;
}

Picture::Picture(int width, int height)
    : width_(width),
      height_(height),
      bytes_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3, 255) {}

Color Picture::at(int x, int y) const {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return {255, 255, 255};
  const std::uint8_t* pixel =
      &bytes_[(static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) + static_cast<std::size_t>(x)) * 3];
  return {pixel[0], pixel[1], pixel[2]};
}

void Picture::write_png(const std::string& path) const {
  OutputFile file("picture", path);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width_);
  image.height = static_cast<png_uint_32>(height_);
  image.format = PNG_FORMAT_RGB;
  errno = 0;
  if (png_image_write_to_stdio(&image, file.stream(), 0, bytes_.data(), 0, nullptr) == 0) {
    file.fail(errno != 0 ? std::strerror(errno) : image.message);
  }
  file.finish();
}

}  // namespace scg
