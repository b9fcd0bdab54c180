// SPDX-License-Identifier: MIT
// The linear system that the five-point stencil makes of a problem, and its solution by conjugate gradients.
#pragma once

#include <vector>

#include "block.hpp"
#include "job.hpp"

namespace scg {

// The five-point stencil turns a problem into a linear system; a cell has the equations of its block. Every equation is
// divided by the diagonal of the matrix ("diagonal scaling"). That is the same number in all equations, so the matrix
// stays symmetric and its diagonal becomes 1:
//
//     u - cx (west + east) - cy (south + north) = f / diagonal + boundary values

/// The coefficients of the stencil. Unknown (i, j) of the whole grid lies at ((i+1) hx, (j+1) hy).
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

/// Fills `b` with the right-hand side, and its halo with 0.
void fill_right_side(Field& b, const Problem& problem, const Block& block);

/// Where the block touches the edge of the square, fills the halo of `u` with the boundary values, corners included.
void fill_edge(Field& u, const Problem& problem, const Block& block);

/// Sum over the block of (b - A u)^2. A u uses the halo of `u`, except at the edge of the square, whose values are in
/// b.
[[nodiscard]] double squared_residual(const Field& b, const Field& u, const Block& block);

/// Sum over the block of b^2.
[[nodiscard]] double squared_norm(const Field& b);

/// Largest |u - exact solution| over the block.
[[nodiscard]] double largest_error(const Field& u, const Problem& problem, const Block& block);

/// The three fields that a cell needs: 3 x 8 bytes per unknown.
struct Fields {
  Field x;  ///< The solution so far.
  Field r;  ///< The residual b - A x.
  Field p;  ///< The direction of the next step.
  explicit Fields(const Block& block)
      : x(block.x.count, block.y.count, 0), r(block.x.count, block.y.count, 1), p(block.x.count, block.y.count, 2) {}
};

struct Solution {
  int iterations = 0;
  bool converged = false;
  double residual = 0;
  double seconds = 0;
  CellTimes times{};
};

/// Solves A x = b. Collective. Every cell gets the same numbers, bit for bit, for any number of threads. `history`, if
/// not null, gets a residual per iteration. REQUIRES: r holds b; x and p are 0; `history` has room for all residuals,
/// because the iteration allocates nothing.
Solution solve(Fields& fields, Halo& halo, const Block& block, const Job& job, std::vector<double>* history);

}  // namespace scg
