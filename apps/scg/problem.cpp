// SPDX-License-Identifier: MIT
#include "problem.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <numbers>
#include <stdexcept>

namespace scg {

namespace {

constexpr double pi = std::numbers::pi;

// sine: one wave. Its f is an eigenvector of the matrix, so CG needs one iteration: a check, not a benchmark.
double sine(double x, double y) { return std::sin(pi * x) * std::sin(pi * y); }
double sine_source(double x, double y) { return 2 * pi * pi * sine(x, y); }

// polynomial: of degree four in x, the lowest degree at which the five-point stencil is not exact.
double polynomial(double x, double y) { return 32 * x * x * x * (1 - x) * y * (1 - y); }
double polynomial_source(double x, double y) {
  return 32 * ((12 * x * x - 6 * x) * y * (1 - y) + 2 * x * x * x * (1 - x));
}

// steep: e^(ax) sin(bx) times the same in y with other numbers, so no symmetry helps.
struct Swell {
  double a;
  double b;
  double operator()(double t) const { return std::exp(a * t) * std::sin(b * t); }
  [[nodiscard]] double second_derivative(double t) const {
    return std::exp(a * t) * ((a * a - b * b) * std::sin(b * t) + 2 * a * b * std::cos(b * t));
  }
};
constexpr Swell steep_x{3, pi};
constexpr Swell steep_y{-2, 2 * pi};
double steep(double x, double y) { return steep_x(x) * steep_y(y); }
double steep_source(double x, double y) {
  return -(steep_x.second_derivative(x) * steep_y(y) + steep_x(x) * steep_y.second_derivative(y));
}

// harmonic: f = 0; the edge does it all.
double harmonic(double x, double y) { return std::exp(pi * x) * std::sin(pi * y); }
double zero(double, double) { return 0; }

}  // namespace

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all{
      {"steep", "u = exp(3x - 2y) sin(pi x) sin(2 pi y)", steep_source, steep},
      {"sine", "u = sin(pi x) sin(pi y)", sine_source, sine},
      {"polynomial", "u = 32 x^3 (1 - x) y (1 - y)", polynomial_source, polynomial},
      {"harmonic", "u = exp(pi x) sin(pi y)", zero, harmonic},
      {"charges",
       "f = sum of point charges",
       nullptr,
       nullptr,
       {{0.3, 0.35, 1.0}, {0.7, 0.35, -1.0}, {0.25, 0.75, -0.5}, {0.5, 0.7, 1.5}, {0.8, 0.8, -1.0}}},
  };
  return all;
}

const Problem* find_problem(std::string_view name) {
  for (const Problem& problem : problems()) {
    if (problem.name == name) return &problem;
  }
  return nullptr;
}

std::string problem_names() {
  std::string names;
  for (const Problem& problem : problems()) {
    if (!names.empty()) names += ", ";
    names += problem.name;
  }
  return names;
}

Charge parse_charge(const std::string& text) {
  const auto refuse = [&](const char* why) {
    throw std::invalid_argument(fmt::format(
        "\"{}\" is not a charge: {}; use x,y,q with 0 < x < 1 and 0 < y < 1, for example 0.3,0.5,-1", text, why));
  };
  double value[3];
  const char* at = text.c_str();
  for (int i = 0; i < 3; ++i) {
    if (i > 0 && *at++ != ',') refuse("it needs three numbers separated by commas");
    char* end = nullptr;
    value[i] = std::strtod(at, &end);
    if (end == at) refuse("it needs three numbers separated by commas");
    if (!std::isfinite(value[i])) refuse("its numbers must be finite");
    at = end;
  }
  if (*at != '\0') refuse("something follows the third number");
  if (!(value[0] > 0 && value[0] < 1 && value[1] > 0 && value[1] < 1)) refuse("it lies outside the square");
  return {value[0], value[1], value[2]};
}

}  // namespace scg
