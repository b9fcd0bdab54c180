// SPDX-License-Identifier: MIT
// What the cells are asked to do, and what they hand back. Every cell reads the one Job; cell 0 fills in the one
// Outcome.
#pragma once

#include <string>
#include <vector>

#include "decomposition.hpp"
#include "problem.hpp"

namespace scg {

struct Job {
  GridSize grid{300, 300};
  Problem problem{};
  double tolerance = 1e-8;      ///< Stop when |b - A u| <= tolerance * |b|.
  int iterations_max = 0;       ///< And here at the latest.
  int picture_side = 0;         ///< Samples of the solution wanted in each direction; 0: no picture.
  bool wants_history = false;   ///< Keep the residual of every iteration.
  bool shows_progress = false;  ///< Draw a progress bar on stderr.
};

/// How one cell spent its time in the solver.
struct CellTimes {
  double seconds = 0;          ///< In the solver.
  double message_seconds = 0;  ///< Of these, inside calls of the library: copying, and waiting for other cells.
};

struct Outcome {
  GridSize cells{};
  int iterations = 0;
  bool converged = false;
  double residual = 0;                ///< |r| / |b| as the iteration knows it.
  double true_residual = 0;           ///< |b - A u| / |b|, computed afresh from the solution.
  double error_max = 0;               ///< Largest |u - exact|; only where the problem has a solution.
  double seconds = 0;                 ///< Of the iterations alone.
  int threads = 1;                    ///< OS threads that carried the cells.
  double triad_bytes_per_second = 0;  ///< Of one thread while all work, on the solver's own memory.
  const char* instruction_set = "";
  std::vector<double> history;        ///< |r| / |b| before each iteration and after the last.
  std::vector<CellTimes> cell_times;  ///< By cell id.
  std::vector<float> picture;         ///< picture_side^2 samples, row by row from the south.
};

/// Counted, as everywhere for CG with diagonal scaling, on the textbook form: A p 6, p.Ap 2, x 2, r 2, r.r 2, p 2.
inline constexpr int flops_per_unknown = 16;

/// What one iteration must move between caches or memory and the processor, per unknown: p and r are read and written
/// once, x once in two iterations.
inline constexpr int bytes_per_unknown = 40;

}  // namespace scg
