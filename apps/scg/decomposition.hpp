// SPDX-License-Identifier: MIT
// Who owns which unknowns: the grid of unknowns is cut into one rectangular block per cell.
#pragma once

#include <string>

namespace scg {

/// nx x ny things, x fastest: unknowns or cells.
struct GridSize {
  int nx = 1;
  int ny = 1;
  [[nodiscard]] long long count() const { return static_cast<long long>(nx) * ny; }
  friend bool operator==(GridSize, GridSize) = default;
};

/// Consecutive unknowns of one direction: first, first + 1, ... first + count - 1.
struct Range {
  int first = 0;
  int count = 0;
  [[nodiscard]] int end() const { return first + count; }
};

/// Part `index` of `total` unknowns cut into `parts`: sizes differ by at most one.
[[nodiscard]] Range part_of(int total, int parts, int index);

/// The block of the cell at (cell_x, cell_y), in global numbers.
struct Block {
  GridSize grid;   ///< The whole grid of unknowns.
  GridSize cells;  ///< The whole grid of cells.
  int cell_x = 0;
  int cell_y = 0;
  Range x;
  Range y;

  [[nodiscard]] bool has_west() const { return cell_x > 0; }
  [[nodiscard]] bool has_east() const { return cell_x + 1 < cells.nx; }
  [[nodiscard]] bool has_south() const { return cell_y > 0; }
  [[nodiscard]] bool has_north() const { return cell_y + 1 < cells.ny; }
};

[[nodiscard]] Block block_of(GridSize grid, GridSize cells, int cell_x, int cell_y);

/// Why these cells cannot share this grid, and what can be done; empty when they can.
[[nodiscard]] std::string decomposition_problem(GridSize grid, GridSize cells);

}  // namespace scg
