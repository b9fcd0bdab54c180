// SPDX-License-Identifier: MIT
//
// scg from a cell's point of view, top to bottom. All cells run this same function at the same time; what differs is
// who they are, so the first thing a cell does is ask. Nothing here knows about threads: cells share no variables,
// they send messages.
//
// The calls of the library are CellOS, as on the AP1000 (docs/cellos.md):
//
//   getcidx getcidy getncelx getncely   who am I, and how large is the machine
//   xy_send xy_recvs                    messages to and from a cell so many steps away (halo.cpp)
//   xy_dsum xy_dmax                     sum, maximum over all cells; every cell gets the result
//   l_asend l_arecv readmsg             messages by cell number
//   sync dgettime                       barrier; the time in seconds
#include "cell.hpp"

#include <aplib/cellos.h>

#include <algorithm>
#include <cmath>

#include "halo.hpp"
#include "kernels.hpp"
#include "sampling.hpp"
#include "solver.hpp"
#include "system.hpp"
#include "triad.hpp"

namespace scg {

namespace {

constexpr int times_type = 20;  // message type of collect_times

/// Every cell tells cell 0 how it spent its time.
std::vector<CellTimes> collect_times(CellTimes mine) {
  if (getcid() != 0) {
    l_asend(0, 0, times_type, &mine, sizeof mine);
    return {};
  }
  std::vector<CellTimes> all{mine};
  all.resize(static_cast<std::size_t>(getncel()));
  for (int cell = 1; cell < getncel(); ++cell) {
    l_arecv(cell, 0, times_type);                                      // waits; the message stays with the library
    readmsg(&all[static_cast<std::size_t>(cell)], sizeof(CellTimes));  // copies it out
  }
  return all;
}

}  // namespace

void cell_program(const Job& job, Outcome& outcome) {
  // Which part of the grid is mine? Cell (0, 0) is in the south-west corner.
  const Block block = block_of(job.grid, {getncelx(), getncely()}, getcidx(), getcidy());
  const bool first_cell = getcid() == 0;

  // My memory. A global variable would be mine alone just as well.
  Fields fields(block);
  Halo halo(block);
  std::vector<double> history;
  if (job.wants_history && first_cell) history.reserve(static_cast<std::size_t>(job.iterations_max) + 1);

  // How fast is memory, when all cells use it?
  const double triad = measure_triad(fields);

  // The equations: r starts as the right-hand side, because x starts as 0.
  fields.x.clear();
  fields.p.clear();
  fill_right_side(fields.r, job.problem, block);

  const Solution solution = solve(fields, halo, block, job, history.capacity() > 0 ? &history : nullptr);

  // Is it true? b - A x from scratch, with the neighbours' x at my sides. The direction p has done its work and lends
  // its memory to b.
  halo.exchange_with_corners(fields.x);
  fill_right_side(fields.p, job.problem, block);
  double rest = 0;
  double right_side = 0;
  xy_dsum(squared_residual(fields.p, fields.x, block), &rest);
  xy_dsum(squared_norm(fields.p), &right_side);

  // How far from the exact solution? xy_dmax also says who has the largest value; we do not ask.
  double error = 0;
  if (job.problem.solution != nullptr) {
    int where = 0;
    xy_dmax(largest_error(fields.x, job.problem, block), getcid(), &error, &where);
  }

  std::vector<float> picture;
  if (job.picture_side > 0) {
    fill_edge(fields.x, job.problem, block);
    picture = gather_samples(fields.x, block, job.picture_side);
  }
  std::vector<CellTimes> times = collect_times(solution.times);

  if (!first_cell) return;
  outcome.cells = block.cells;
  outcome.iterations = solution.iterations;
  outcome.converged = solution.converged;
  outcome.residual = solution.residual;
  outcome.true_residual = right_side > 0 ? std::sqrt(rest / right_side) : std::sqrt(rest);
  outcome.error_max = error;
  outcome.seconds = solution.seconds;
  outcome.triad_bytes_per_second = triad;
  outcome.instruction_set = kernels().name;
  outcome.history = std::move(history);
  outcome.cell_times = std::move(times);
  outcome.picture = std::move(picture);
}

}  // namespace scg
