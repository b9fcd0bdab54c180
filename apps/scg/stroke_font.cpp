// SPDX-License-Identifier: MIT
#include "stroke_font.hpp"

#include <cstdlib>

namespace scg {

namespace {

/// A character: its width, and the pen's way as "M x y" (move), "L x y" (line), "Q cx cy x y" (curve bent towards c).
struct Glyph {
  char character;
  double width;
  const char* way;
};

constexpr Glyph glyphs[] = {
    {' ', 3, ""},
    {'0', 6, "M3 0 Q0 0 0 4.5 Q0 9 3 9 Q6 9 6 4.5 Q6 0 3 0"},
    {'1', 6, "M1 7 L3.2 9 L3.2 0"},
    {'2', 6, "M.3 6.8 Q.5 9 3 9 Q5.7 9 5.7 6.6 Q5.7 5 4 3.5 L.2 0 L6 0"},
    {'3', 6, "M.4 9 L5.5 9 L2.6 5.5 Q6 5.5 6 2.8 Q6 0 3 0 Q.5 0 0 2"},
    {'4', 6, "M4.6 0 L4.6 9 L0 2.8 L6.2 2.8"},
    {'5', 6, "M5.4 9 L1 9 L.6 5 Q1.5 5.8 3 5.8 Q6 5.8 6 2.9 Q6 0 3 0 Q.6 0 0 1.8"},
    {'6', 6, "M5.2 9 Q0 7.5 0 3 Q0 0 3 0 Q6 0 6 2.8 Q6 5.5 3 5.5 Q.5 5.5 0 3"},
    {'7', 6, "M0 9 L6 9 L2 0"},
    {'8', 6, "M3 5 Q.4 5 .4 7 Q.4 9 3 9 Q5.6 9 5.6 7 Q5.6 5 3 5 Q0 5 0 2.5 Q0 0 3 0 Q6 0 6 2.5 Q6 5 3 5"},
    {'9', 6, "M.8 0 Q6 1.5 6 6 Q6 9 3 9 Q0 9 0 6.2 Q0 3.5 3 3.5 Q5.5 3.5 6 6"},
    {'a', 5, "M5 6 L5 0 M5 3 Q5 6 2.6 6 Q0 6 0 3 Q0 0 2.6 0 Q5 0 5 3"},
    {'b', 5, "M0 9 L0 0 M0 3 Q0 6 2.4 6 Q5 6 5 3 Q5 0 2.4 0 Q0 0 0 3"},
    {'c', 4.8, "M4.8 4.8 Q4.2 6 2.6 6 Q0 6 0 3 Q0 0 2.6 0 Q4.2 0 4.8 1.2"},
    {'d', 5, "M5 9 L5 0 M5 3 Q5 6 2.6 6 Q0 6 0 3 Q0 0 2.6 0 Q5 0 5 3"},
    {'e', 5, "M0 3.2 L5 3.2 Q5 6 2.6 6 Q0 6 0 3 Q0 0 2.7 0 Q4.2 0 4.8 1.3"},
    {'f', 3.4, "M3.7 9 Q1.4 9.2 1.4 7 L1.4 0 M0 6 L3.3 6"},
    {'g', 5, "M5 6 L5 -.6 Q5 -3 2.5 -3 Q1 -3 .3 -2 M5 3 Q5 6 2.6 6 Q0 6 0 3 Q0 0 2.6 0 Q5 0 5 3"},
    {'h', 4.8, "M0 9 L0 0 M0 3.4 Q0 6 2.6 6 Q4.8 6 4.8 3.4 L4.8 0"},
    {'i', 1, "M.5 6 L.5 0 M.5 8.3 L.5 8.7"},
    {'j', 1.5, "M1.5 6 L1.5 -1.4 Q1.5 -3 0 -3 M1.5 8.3 L1.5 8.7"},
    {'k', 4.8, "M0 9 L0 0 M4.4 6 L0 2.2 M1.6 3.5 L4.8 0"},
    {'l', 1, "M.5 9 L.5 0"},
    {'m', 7.4, "M0 6 L0 0 M0 3.6 Q0 6 2 6 Q3.7 6 3.7 3.6 L3.7 0 M3.7 3.6 Q3.7 6 5.7 6 Q7.4 6 7.4 3.6 L7.4 0"},
    {'n', 4.8, "M0 6 L0 0 M0 3.4 Q0 6 2.6 6 Q4.8 6 4.8 3.4 L4.8 0"},
    {'o', 5.2, "M2.6 0 Q0 0 0 3 Q0 6 2.6 6 Q5.2 6 5.2 3 Q5.2 0 2.6 0"},
    {'p', 5, "M0 6 L0 -3 M0 3 Q0 6 2.4 6 Q5 6 5 3 Q5 0 2.4 0 Q0 0 0 3"},
    {'q', 5, "M5 6 L5 -3 M5 3 Q5 6 2.6 6 Q0 6 0 3 Q0 0 2.6 0 Q5 0 5 3"},
    {'r', 3, "M0 6 L0 0 M0 3.2 Q.3 6 3 5.9"},
    {'s', 4.6, "M4.4 4.9 Q4 6 2.3 6 Q.3 6 .3 4.5 Q.3 3.4 2.4 3 Q4.6 2.6 4.6 1.5 Q4.6 0 2.4 0 Q.5 0 0 1.2"},
    {'t', 3.4, "M1.4 8 L1.4 1.7 Q1.4 0 3.4 .1 M0 6 L3.3 6"},
    {'u', 4.8, "M0 6 L0 2.6 Q0 0 2.3 0 Q4.8 0 4.8 2.6 M4.8 6 L4.8 0"},
    {'v', 4.8, "M0 6 L2.4 0 L4.8 6"},
    {'w', 7, "M0 6 L1.7 0 L3.5 6 L5.3 0 L7 6"},
    {'x', 4.6, "M0 6 L4.6 0 M4.6 6 L0 0"},
    {'y', 4.8, "M0 6 L2.4 0 M4.8 6 L1.8 -1.8 Q1.3 -3 0 -3"},
    {'z', 4.6, "M0 6 L4.5 6 L0 0 L4.6 0"},
    {'A', 6.6, "M0 0 L3.3 9 L6.6 0 M1.1 3 L5.5 3"},
    {'B', 5.8, "M0 0 L0 9 L3 9 Q5.4 9 5.4 7 Q5.4 5 3 5 L0 5 M3 5 Q5.8 5 5.8 2.5 Q5.8 0 3 0 L0 0"},
    {'C', 6.2, "M6.2 7 Q5.4 9 3.4 9 Q0 9 0 4.5 Q0 0 3.4 0 Q5.4 0 6.2 2"},
    {'D', 6, "M0 0 L0 9 L2.4 9 Q6 9 6 4.5 Q6 0 2.4 0 L0 0"},
    {'E', 5.2, "M5.2 9 L0 9 L0 0 L5.2 0 M0 4.8 L4.4 4.8"},
    {'F', 5, "M5 9 L0 9 L0 0 M0 4.8 L4.2 4.8"},
    {'G', 6.4, "M6.2 7 Q5.4 9 3.4 9 Q0 9 0 4.5 Q0 0 3.4 0 Q6.4 0 6.4 4 L3.8 4"},
    {'H', 6, "M0 0 L0 9 M6 0 L6 9 M0 4.8 L6 4.8"},
    {'I', 1, "M.5 0 L.5 9"},
    {'J', 4, "M4 9 L4 2.4 Q4 0 2 0 Q0 0 0 2.2"},
    {'K', 5.8, "M0 0 L0 9 M5.6 9 L0 3.4 M2 5.2 L5.8 0"},
    {'L', 5, "M0 9 L0 0 L5 0"},
    {'M', 7.4, "M0 0 L0 9 L3.7 2.6 L7.4 9 L7.4 0"},
    {'N', 6.2, "M0 0 L0 9 L6.2 0 L6.2 9"},
    {'O', 6.8, "M3.4 0 Q0 0 0 4.5 Q0 9 3.4 9 Q6.8 9 6.8 4.5 Q6.8 0 3.4 0"},
    {'P', 5.4, "M0 0 L0 9 L2.8 9 Q5.4 9 5.4 6.6 Q5.4 4.2 2.8 4.2 L0 4.2"},
    {'Q', 6.8, "M3.4 0 Q0 0 0 4.5 Q0 9 3.4 9 Q6.8 9 6.8 4.5 Q6.8 0 3.4 0 M4 2.4 L6.8 -.6"},
    {'R', 5.6, "M0 0 L0 9 L2.8 9 Q5.4 9 5.4 6.8 Q5.4 4.6 2.8 4.6 L0 4.6 M2.8 4.6 L5.6 0"},
    {'S', 5.8, "M5.5 7.3 Q5 9 2.9 9 Q.3 9 .3 6.8 Q.3 5.2 3 4.7 Q5.8 4.2 5.8 2.4 Q5.8 0 2.9 0 Q.6 0 0 2"},
    {'T', 6, "M0 9 L6 9 M3 9 L3 0"},
    {'U', 6, "M0 9 L0 3.2 Q0 0 3 0 Q6 0 6 3.2 L6 9"},
    {'V', 6.4, "M0 9 L3.2 0 L6.4 9"},
    {'W', 9, "M0 9 L2.2 0 L4.5 9 L6.8 0 L9 9"},
    {'X', 6, "M0 9 L6 0 M6 9 L0 0"},
    {'Y', 6, "M0 9 L3 4.4 L6 9 M3 4.4 L3 0"},
    {'Z', 6, "M0 9 L6 9 L0 0 L6 0"},
    {'.', 1, "M.5 0 L.5 .4"},
    {',', 1.4, "M.9 .5 L.4 -1.6"},
    {':', 1, "M.5 0 L.5 .4 M.5 5 L.5 5.4"},
    {';', 1.4, "M.9 .5 L.4 -1.6 M.9 5 L.9 5.4"},
    {'\'', 1, "M.5 9 L.5 6.6"},
    {'-', 3.6, "M0 3.6 L3.6 3.6"},
    {'+', 5.4, "M0 3.6 L5.4 3.6 M2.7 .9 L2.7 6.3"},
    {'=', 5.4, "M0 2.4 L5.4 2.4 M0 4.8 L5.4 4.8"},
    {'*', 4, "M2 4 L2 8 M.2 5 L3.8 7 M3.8 5 L.2 7"},
    {'/', 4, "M0 -1 L4 9"},
    {'^', 4, "M0 6.4 L2 9 L4 6.4"},
    {'(', 2.2, "M2.2 10 Q-1.4 4 2.2 -2"},
    {')', 2.2, "M0 10 Q3.6 4 0 -2"},
    {'[', 2, "M2 10 L0 10 L0 -2 L2 -2"},
    {']', 2, "M0 10 L2 10 L2 -2 L0 -2"},
    {'|', 1, "M.5 10 L.5 -2"},
    {'<', 5, "M5 6.4 L0 3.6 L5 .8"},
    {'>', 5, "M0 6.4 L5 3.6 L0 .8"},
    {'_', 5.4, "M0 -1 L5.4 -1"},
    {'%', 7.4,
     "M6.6 9 L.8 0 M1.6 9 Q0 9 0 7.2 Q0 5.4 1.6 5.4 Q3.2 5.4 3.2 7.2 Q3.2 9 1.6 9 "
     "M5.8 3.6 Q4.2 3.6 4.2 1.8 Q4.2 0 5.8 0 Q7.4 0 7.4 1.8 Q7.4 3.6 5.8 3.6"},
};

constexpr Glyph box{'\0', 5, "M0 0 L5 0 L5 9 L0 9 L0 0"};
constexpr double gap = 2.4;

const Glyph* find(char character) {
  for (const Glyph& glyph : glyphs) {
    if (glyph.character == character) return &glyph;
  }
  return nullptr;
}

const Glyph& glyph_of(char character) {
  const Glyph* glyph = find(character);
  return glyph != nullptr ? *glyph : box;
}

/// A curve as short lines.
void append_curve(Stroke& stroke, FontPoint bend, FontPoint to) {
  constexpr int pieces = 6;
  const FontPoint from = stroke.back();
  for (int i = 1; i <= pieces; ++i) {
    const double t = static_cast<double>(i) / pieces;
    const double a = (1 - t) * (1 - t);
    const double b = 2 * t * (1 - t);
    const double c = t * t;
    stroke.push_back({a * from.x + b * bend.x + c * to.x, a * from.y + b * bend.y + c * to.y});
  }
}

void append_glyph(std::vector<Stroke>& strokes, const char* way, double shift) {
  const auto number = [&] {
    char* end = nullptr;
    const double value = std::strtod(way, &end);
    way = end;
    return value;
  };
  const auto point = [&] {
    const double x = number();
    return FontPoint{x + shift, number()};
  };
  while (*way != '\0') {
    switch (*way++) {
      case 'M':
        strokes.push_back({point()});
        break;
      case 'L':
        strokes.back().push_back(point());
        break;
      case 'Q': {
        const FontPoint bend = point();
        append_curve(strokes.back(), bend, point());
        break;
      }
      default:
        break;  // blanks
    }
  }
}

}  // namespace

double text_width(std::string_view text) {
  double width = 0;
  for (const char c : text) width += glyph_of(c).width + gap;
  return text.empty() ? 0 : width - gap;
}

std::vector<Stroke> text_strokes(std::string_view text) {
  std::vector<Stroke> strokes;
  double shift = 0;
  for (const char c : text) {
    const Glyph& glyph = glyph_of(c);
    append_glyph(strokes, glyph.way, shift);
    shift += glyph.width + gap;
  }
  return strokes;
}

bool can_draw(std::string_view text) {
  for (const char c : text) {
    if (find(c) == nullptr) return false;
  }
  return true;
}

}  // namespace scg
