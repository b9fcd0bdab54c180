// SPDX-License-Identifier: MIT
#include "decomposition.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace scg {

Range part_of(int total, int parts, int index) {
  const auto begin = [&](long long i) { return static_cast<int>(total * i / parts); };
  return {begin(index), begin(index + 1) - begin(index)};
}

Block block_of(GridSize grid, GridSize cells, int cell_x, int cell_y) {
  return {grid, cells, cell_x, cell_y, part_of(grid.nx, cells.nx, cell_x), part_of(grid.ny, cells.ny, cell_y)};
}

std::string decomposition_problem(GridSize grid, GridSize cells) {
  if (cells.nx <= grid.nx && cells.ny <= grid.ny) return {};
  return fmt::format(
      "{}x{} cells cannot share a grid of {}x{} unknowns, because each cell needs at least one column and one row; the "
      "largest grid of cells possible is {}x{}: use --cells {}x{} or a larger --grid",
      cells.nx, cells.ny, grid.nx, grid.ny, grid.nx, grid.ny, std::min(cells.nx, grid.nx), std::min(cells.ny, grid.ny));
}

}  // namespace scg
