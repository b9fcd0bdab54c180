// SPDX-License-Identifier: MIT
// The linear system that the five-point stencil makes of a problem, and its solution by conjugate gradients.
#pragma once

#include <vector>

#include "block.hpp"
#include "job.hpp"

namespace scg {

// The linear system that the five-point stencil makes of a problem, on one block. Every equation is divided by the
// diagonal ("diagonal scaling"), which is the same number in all of them, so the matrix stays symmetric and its
// diagonal becomes 1:
//
//     u - cx (west + east) - cy (south + north) = f / diagonal + boundary values

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

/// The three fields a cell needs: 3 x 8 bytes an unknown.
struct Fields {
  Field x;  ///< The solution so far.
  Field r;  ///< What is left of the right-hand side: b - A x.
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

/// Solves A x = b, where r holds b and x and p are 0. All cells call it together; every cell gets the same numbers,
/// bit for bit, however many threads carry them. `history`, when not null, gets a residual per iteration (it must
/// have room: nothing is allocated).
Solution solve(Fields& fields, Halo& halo, const Block& block, const Job& job, std::vector<double>* history);

}  // namespace scg
