// SPDX-License-Identifier: MIT
// Conjugate gradients on the cells' blocks.
#pragma once

#include <vector>

#include "decomposition.hpp"
#include "field.hpp"
#include "halo.hpp"
#include "job.hpp"

namespace scg {

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
