// SPDX-License-Identifier: MIT
#include "system.hpp"

#include <algorithm>
#include <cmath>

namespace scg {

Stencil::Stencil(GridSize grid)
    : hx(1.0 / (grid.nx + 1)),
      hy(1.0 / (grid.ny + 1)),
      diagonal(2 / (hx * hx) + 2 / (hy * hy)),
      cx(1 / (hx * hx) / diagonal),
      cy(1 / (hy * hy) / diagonal) {}

namespace {

/// A charge between four unknowns (or edge points) is shared out to them by distance, so that it stays where it is on
/// average.
void add_charge(Field& b, const Charge& charge, const Block& block, const Stencil& stencil) {
  const double gx = charge.x / stencil.hx - 1;  // in unknowns
  const double gy = charge.y / stencil.hy - 1;
  const double density = charge.q / (stencil.hx * stencil.hy) / stencil.diagonal;
  const int west = static_cast<int>(std::floor(gx));
  const int south = static_cast<int>(std::floor(gy));
  for (int j = south; j <= south + 1; ++j) {
    for (int i = west; i <= west + 1; ++i) {
      if (i < block.x.first || i >= block.x.end() || j < block.y.first || j >= block.y.end()) continue;
      b.row(j - block.y.first)[i - block.x.first] += density * (1 - std::abs(gx - i)) * (1 - std::abs(gy - j));
    }
  }
}

}  // namespace

void fill_right_side(Field& b, const Problem& problem, const Block& block) {
  const Stencil stencil(block.grid);
  b.clear();
  for (int j = 0; j < block.y.count; ++j) {
    const double y = stencil.y(block.y.first + j);
    double* row = b.row(j);
    if (problem.source != nullptr) {
      for (int i = 0; i < block.x.count; ++i) {
        row[i] = problem.source(stencil.x(block.x.first + i), y) / stencil.diagonal;
      }
    }
    if (!block.has_west()) row[0] += stencil.cx * problem.edge(0, y);
    if (!block.has_east()) row[block.x.count - 1] += stencil.cx * problem.edge(1, y);
  }
  for (int i = 0; i < block.x.count; ++i) {
    const double x = stencil.x(block.x.first + i);
    if (!block.has_south()) b.row(0)[i] += stencil.cy * problem.edge(x, 0);
    if (!block.has_north()) b.row(block.y.count - 1)[i] += stencil.cy * problem.edge(x, 1);
  }
  for (const Charge& charge : problem.charges) add_charge(b, charge, block, stencil);
}

void fill_edge(Field& u, const Problem& problem, const Block& block) {
  const Stencil stencil(block.grid);
  const int nx = block.x.count;
  const int ny = block.y.count;
  for (int j = -1; j <= ny; ++j) {
    const double y = std::clamp(stencil.y(block.y.first + j), 0.0, 1.0);
    if (!block.has_west()) u.row(j)[-1] = problem.edge(0, y);
    if (!block.has_east()) u.row(j)[nx] = problem.edge(1, y);
  }
  for (int i = -1; i <= nx; ++i) {
    const double x = std::clamp(stencil.x(block.x.first + i), 0.0, 1.0);
    if (!block.has_south()) u.row(-1)[i] = problem.edge(x, 0);
    if (!block.has_north()) u.row(ny)[i] = problem.edge(x, 1);
  }
}

double squared_residual(const Field& b, const Field& u, const Block& block) {
  const Stencil stencil(block.grid);
  double sum = 0;
  for (int j = 0; j < u.ny(); ++j) {
    const double* row = u.row(j);
    const bool no_south = j == 0 && !block.has_south();
    const bool no_north = j == u.ny() - 1 && !block.has_north();
    for (int i = 0; i < u.nx(); ++i) {
      const double west = i == 0 && !block.has_west() ? 0 : row[i - 1];
      const double east = i == u.nx() - 1 && !block.has_east() ? 0 : row[i + 1];
      const double south = no_south ? 0 : u.row(j - 1)[i];
      const double north = no_north ? 0 : u.row(j + 1)[i];
      const double rest = b.row(j)[i] - row[i] + stencil.cx * (west + east) + stencil.cy * (south + north);
      sum += rest * rest;
    }
  }
  return sum;
}

double squared_norm(const Field& b) {
  double sum = 0;
  for (int j = 0; j < b.ny(); ++j) {
    for (int i = 0; i < b.nx(); ++i) sum += b.row(j)[i] * b.row(j)[i];
  }
  return sum;
}

double largest_error(const Field& u, const Problem& problem, const Block& block) {
  const Stencil stencil(block.grid);
  double largest = 0;
  for (int j = 0; j < u.ny(); ++j) {
    const double y = stencil.y(block.y.first + j);
    for (int i = 0; i < u.nx(); ++i) {
      largest = std::max(largest, std::abs(u.row(j)[i] - problem.solution(stencil.x(block.x.first + i), y)));
    }
  }
  return largest;
}

}  // namespace scg
