// SPDX-License-Identifier: MIT
#include "sampling.hpp"

#include <aplib/cellos.h>

#include <algorithm>
#include <cmath>

namespace scg {

namespace {

enum Type { to_row_leader = 11, to_cell_0 = 12 };

/// Sample s lies at (s + 1/2) / side of the square; unknown i at (i + 1) / (total + 1). In unknowns, where is the
/// sample?
double place_of(int s, int total, int side) { return (s + 0.5) / side * (total + 1) - 1; }

/// The unknown whose cell provides the sample: the one to its west (south), or the first.
int provider_of(int s, int total, int side) {
  return std::max(static_cast<int>(std::floor(place_of(s, total, side))), 0);
}

int size_of(std::size_t count) { return static_cast<int>(count * sizeof(float)); }

}  // namespace

Range samples_of(Range part, int total, int side) {
  // provider_of() grows with s, so the samples of a part are consecutive.
  const auto first_from = [&](int unknown) {
    int s = 0;
    while (s < side && provider_of(s, total, side) < unknown) ++s;
    return s;
  };
  const int first = first_from(part.first);
  return {first, first_from(part.end()) - first};
}

std::vector<float> sample_block(const Field& u, const Block& block, int side) {
  const Range columns = samples_of(block.x, block.grid.nx, side);
  const Range rows = samples_of(block.y, block.grid.ny, side);
  std::vector<float> samples;
  samples.reserve(static_cast<std::size_t>(columns.count) * static_cast<std::size_t>(rows.count));
  for (int t = rows.first; t < rows.end(); ++t) {
    const double y = place_of(t, block.grid.ny, side);
    const int j = static_cast<int>(std::floor(y));
    const double* south = u.row(j - block.y.first);
    const double* north = u.row(j - block.y.first + 1);
    for (int s = columns.first; s < columns.end(); ++s) {
      const double x = place_of(s, block.grid.nx, side);
      const int i = static_cast<int>(std::floor(x));
      const int at = i - block.x.first;
      const double below = std::lerp(south[at], south[at + 1], x - i);
      const double above = std::lerp(north[at], north[at + 1], x - i);
      samples.push_back(static_cast<float>(std::lerp(below, above, y - j)));
    }
  }
  return samples;
}

std::vector<float> gather_samples(const Field& u, const Block& block, int side) {
  std::vector<float> mine = sample_block(u, block, side);
  if (block.cell_x > 0) {
    xy_send(-block.cell_x, 0, to_row_leader, mine.data(), size_of(mine.size()));
    return {};
  }

  // A row leader lays the samples of its row's cells side by side.
  const auto width = static_cast<std::size_t>(side);
  const Range rows = samples_of(block.y, block.grid.ny, side);
  std::vector<float> strip(width * static_cast<std::size_t>(rows.count));
  for (int cell_x = 0; cell_x < block.cells.nx; ++cell_x) {
    const Range columns = samples_of(part_of(block.grid.nx, block.cells.nx, cell_x), block.grid.nx, side);
    const auto count = static_cast<std::size_t>(columns.count);
    if (cell_x > 0) {
      mine.resize(count * static_cast<std::size_t>(rows.count));
      xy_recvs(cell_x, 0, to_row_leader, mine.data(), size_of(mine.size()));
    }
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows.count); ++row) {
      std::copy_n(&mine[row * count], count, &strip[row * width + static_cast<std::size_t>(columns.first)]);
    }
  }
  if (block.cell_y > 0) {
    xy_send(0, -block.cell_y, to_cell_0, strip.data(), size_of(strip.size()));
    return {};
  }

  // Cell 0 stacks the strips.
  std::vector<float> picture(width * width);
  std::copy(strip.begin(), strip.end(), picture.begin());
  for (int cell_y = 1; cell_y < block.cells.ny; ++cell_y) {
    const Range part = samples_of(part_of(block.grid.ny, block.cells.ny, cell_y), block.grid.ny, side);
    xy_recvs(0, cell_y, to_cell_0, picture.data() + width * static_cast<std::size_t>(part.first),
             size_of(width * static_cast<std::size_t>(part.count)));
  }
  return picture;
}

}  // namespace scg
