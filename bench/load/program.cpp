// SPDX-License-Identifier: MIT
// The program whose instances are counted. It is like a small C++ program of some 424 KiB: text, tables, initialised
// and zero data, virtual functions, exceptions, template statics.
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

int initialised[16 * 1024] = {1, 2, 3};
int zero[64 * 1024];

struct Shape {
  virtual ~Shape() = default;
  virtual double area() const = 0;
};
template <int n>
struct Polygon : Shape {
  static int made;
  explicit Polygon(double side) : side_(side) { ++made; }
  double area() const override {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += side_ * i / (n + sum + initialised[i % 7]);
    return sum;
  }
  double side_;
};
template <int n>
int Polygon<n>::made = 0;

/// Most of the text; no two instances are alike.
template <int n>
__attribute__((noinline)) double mix(double value) {
  for (int i = 0; i < n % 7 + 2; ++i) value = value * (n + i) / (value + initialised[(n * 31 + i) % 16384] + 1.5);
  if constexpr (n > 1) {
    return value + mix<n - 1>(value);
  } else {
    return value;
  }
}

template <int n>
double all(double side) {
  std::unique_ptr<Shape> shape = std::make_unique<Polygon<n>>(side);
  const double area = shape->area();
  if constexpr (n > 1) {
    return area + all<n - 1>(side / 2);
  } else {
    return area;
  }
}

const std::string name = "a program";
int (*const functions[])(const char*) = {std::puts, std::puts};

}  // namespace

extern "C" int touch(int value) {
  zero[value % 1024] += value;
  initialised[0] += value;
  return static_cast<int>(all<8>(value) + mix<400>(value)) + static_cast<int>(name.size()) +
         (functions[0] == functions[1] ? 1 : 0);
}

extern "C" int throw_and_catch(int value) {
  try {
    throw std::runtime_error("on purpose");
  } catch (const std::exception& error) {
    return value + error.what()[0];
  }
}

int main(int argc, char**) { return touch(argc) == 0; }
