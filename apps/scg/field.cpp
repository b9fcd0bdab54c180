// SPDX-License-Identifier: MIT
#include "field.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace scg {

namespace {
constexpr std::ptrdiff_t place_doubles = 168;  // a third of a page of 4096 bytes, in whole cache lines

/// Room for nx unknowns and the two halo values that share the row, in whole cache lines.
std::ptrdiff_t padded(int nx) {
  const std::ptrdiff_t wanted = nx + 2;
  return (wanted + cache_line_doubles - 1) / cache_line_doubles * cache_line_doubles;
}
}  // namespace

Field::Field(int nx, int ny, int place)
    : nx_(nx),
      ny_(ny),
      stride_(padded(nx)),
      // A cache line before the first row (for its west halo) and one after the last (the loops load one vector ahead).
      count_(static_cast<std::size_t>((ny + 2) * stride_ + 2 * cache_line_doubles + place * place_doubles)),
      memory_(
          static_cast<double*>(::operator new[](count_ * sizeof(double), std::align_val_t{alignment}, std::nothrow))) {
  if (memory_ == nullptr) {
    throw std::runtime_error(
        fmt::format("scg: no memory for a block of {} x {} unknowns, which takes 3 x {:.1f} GB: use a smaller --grid",
                    nx, ny, static_cast<double>(count_ * sizeof(double)) / 1e9));
  }
  first_ = memory_.get() + cache_line_doubles + stride_ + place * place_doubles;
  clear();
}

void Field::clear() { std::fill_n(memory_.get(), count_, 0.0); }

}  // namespace scg
