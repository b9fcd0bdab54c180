// SPDX-License-Identifier: MIT
// The linear system that the five-point stencil makes of a problem, on one block. Every equation is divided by the
// diagonal ("diagonal scaling"), which is the same number in all of them, so the matrix stays symmetric and its
// diagonal becomes 1:
//
//     u - cx (west + east) - cy (south + north) = f / diagonal + boundary values
#pragma once

#include "decomposition.hpp"
#include "field.hpp"
#include "problem.hpp"

namespace scg {

/// The numbers of the stencil. Unknown (i, j) of the whole grid lies at ((i+1) hx, (j+1) hy).
struct Stencil {
  double hx;
  double hy;
  double diagonal;
  double cx;
  double cy;

  explicit Stencil(GridSize grid);
  [[nodiscard]] double x(int i) const { return (i + 1) * hx; }
  [[nodiscard]] double y(int j) const { return (j + 1) * hy; }
};

/// Fills `b` (halo: 0) with the right-hand side.
void fill_right_side(Field& b, const Problem& problem, const Block& block);

/// Puts u's values on the edge of the square into the halo of `u` where the block touches the edge, corners included.
void fill_edge(Field& u, const Problem& problem, const Block& block);

/// Sum over the block of (b - A u)^2, where A u is taken from `u`'s halo on every side but the edge of the square
/// (those values are in b).
[[nodiscard]] double squared_residual(const Field& b, const Field& u, const Block& block);

/// Sum over the block of b^2.
[[nodiscard]] double squared_norm(const Field& b);

/// Largest |u - exact solution| over the block.
[[nodiscard]] double largest_error(const Field& u, const Problem& problem, const Block& block);

}  // namespace scg
