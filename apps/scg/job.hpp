// SPDX-License-Identifier: MIT
// What the cells do and what they return: the problem (-Laplace(u) = f on the unit square, u given on its edge), the
// Job that every cell reads, the Outcome that cell 0 fills in, and both as messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "block.hpp"

namespace scg {

/// A point charge inside the square.
struct Charge {
  double x = 0;
  double y = 0;
  double q = 0;
};

/// A function on the square.
using Function = double (*)(double x, double y);

struct Problem {
  std::string_view name;
  std::string_view formula;       ///< For people: u if it is known, otherwise f.
  Function source = nullptr;      ///< f. Null: only charges.
  Function solution = nullptr;    ///< u, also on the edge. Null: u is not known, and 0 on the edge.
  std::vector<Charge> charges{};  ///< Added to f.

  /// u on the edge of the square.
  [[nodiscard]] double edge(double x, double y) const { return solution != nullptr ? solution(x, y) : 0.0; }
};

/// All built-in problems. `charges` has a default set of charges.
[[nodiscard]] const std::vector<Problem>& problems();

/// The problem with this name, or null.
[[nodiscard]] const Problem* find_problem(std::string_view name);

/// "sine, polynomial, ..." for messages and help.
[[nodiscard]] std::string problem_names();

/// Reads "x,y,q". Throws std::invalid_argument, which says what is wrong.
[[nodiscard]] Charge parse_charge(const std::string& text);

struct Job {
  GridSize grid{300, 300};
  Problem problem{};
  double tolerance = 1e-8;      ///< Stop when |b - A u| <= tolerance * |b|.
  int iterations_max = 0;       ///< Stop here at the latest.
  int picture_side = 0;         ///< Samples of the solution in each direction; 0: no picture.
  bool wants_history = false;   ///< Keep the residual of every iteration.
  bool shows_progress = false;  ///< Draw a progress bar on stderr.
};

/// How one cell spent its time in the solver.
struct CellTimes {
  double seconds = 0;          ///< In the solver.
  double message_seconds = 0;  ///< Of these, inside library calls: copying, and waiting for other cells.
};

struct Outcome {
  GridSize cells{};
  int iterations = 0;
  bool converged = false;
  double residual = 0;                ///< |r| / |b| as the iteration carries it.
  double true_residual = 0;           ///< |b - A u| / |b|, computed anew from the solution.
  double error_max = 0;               ///< Largest |u - exact|, if the exact solution is known.
  double seconds = 0;                 ///< Of the iterations alone.
  int threads = 1;                    ///< OS threads that carried the cells.
  double triad_bytes_per_second = 0;  ///< Of one thread while all work, over the solver's own memory.
  const char* instruction_set = "";
  std::vector<double> history;        ///< |r| / |b| before each iteration and after the last.
  std::vector<CellTimes> cell_times;  ///< By cell id.
  std::vector<float> picture;         ///< picture_side^2 samples, row by row from the south.
};

/// The usual count for CG with diagonal scaling, that of the textbook: A p 6, p.Ap 2, x 2, r 2, r.r 2, p 2.
inline constexpr int flops_per_unknown = 16;

/// Bytes that one iteration moves between the processor and its caches or memory, per unknown: p and r are read and
/// written once, x once in two iterations.
inline constexpr int bytes_per_unknown = 40;

/// Reads "300" or "400x300". Throws std::invalid_argument, which says what is wrong.
[[nodiscard]] GridSize parse_grid(const std::string& text);

/// Where to stop when the tolerance is not reached: well above the iterations that CG needs on such a grid.
[[nodiscard]] int default_iterations_max(GridSize grid);

// Jobs and outcomes as messages. The host program and the cells are separate instances of the program. A pointer of
// one, even to a function or a constant text, means nothing in another. So problems travel by name.

[[nodiscard]] std::vector<std::byte> pack(const Job& job);
/// Throws std::runtime_error when `bytes` are not a packed job.
[[nodiscard]] Job unpack_job(std::span<const std::byte> bytes);

[[nodiscard]] std::vector<std::byte> pack(const Outcome& outcome);
/// Throws std::runtime_error when `bytes` are not a packed outcome.
[[nodiscard]] Outcome unpack_outcome(std::span<const std::byte> bytes);

}  // namespace scg
