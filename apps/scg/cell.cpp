// SPDX-License-Identifier: MIT
// scg from a cell's point of view. Read it from top to bottom. All cells run the same function at the same time. They
// differ only in who they are, so a cell first asks for its place in the grid. Nothing here knows about threads: cells
// share no variables, they send messages.
//
// The calls of the library are CellOS, as on the AP1000 (docs/cellos.md):
//   getcidx getcidy getncelx getncely   the cell's place, and the size of the machine
//   xy_send xy_recvs                    messages to and from a cell some steps away (block.cpp)
//   xy_dsum xy_dmax                     sum and maximum over all cells; every cell gets the result
//   l_asend l_arecv readmsg             messages by cell number
//   sync dgettime                       barrier; the time in seconds
#include "cell.hpp"

#include <aplib/cellos.h>

#include <algorithm>
#include <cmath>

#include "kernels.hpp"
#include "solver.hpp"

namespace scg {

namespace {

/// Measures memory, as a yardstick for the solver: runs a = b + s c over the solver's own three fields. All cells do so
/// at the same time and in step, as in the solver, so that caches are as full as there. Returns the bytes per second
/// that one thread moves: 24 bytes per element, as STREAM counts. Overwrites the fields. Collective.
double measure_triad(Fields& fields);

/// Every cell tells cell 0 how it spent its time. Returns the times by cell id on cell 0, and nothing on the others.
std::vector<CellTimes> collect_times(CellTimes mine);

}  // namespace

void cell_program(const Job& job, Outcome& outcome) {
  // This cell's part of the grid of unknowns. Cell (0, 0) is in the south-west corner.
  const Block block = block_of(job.grid, {getncelx(), getncely()}, getcidx(), getcidy());
  const bool first_cell = getcid() == 0;

  // This cell's memory. Global variables would do as well: each cell has its own.
  Fields fields(block);
  Halo halo(block);
  std::vector<double> history;
  if (job.wants_history && first_cell) history.reserve(static_cast<std::size_t>(job.iterations_max) + 1);

  // The speed of memory when all cells use it.
  const double triad = measure_triad(fields);

  // The equations. x starts at 0, so r = b - A x starts as the right-hand side b.
  fields.x.clear();
  fields.p.clear();
  fill_right_side(fields.r, job.problem, block);

  const Solution solution = solve(fields, halo, block, job, history.capacity() > 0 ? &history : nullptr);

  // The proof: compute b - A x anew, with the neighbours' x in the halo. The solver no longer needs p, so b takes its
  // memory.
  halo.exchange_with_corners(fields.x);
  fill_right_side(fields.p, job.problem, block);
  double residual_squared = 0;
  double b_squared = 0;
  xy_dsum(squared_residual(fields.p, fields.x, block), &residual_squared);
  xy_dsum(squared_norm(fields.p), &b_squared);

  // The distance from the exact solution. xy_dmax also says which cell has the largest value, which is not needed.
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
  outcome.true_residual = b_squared > 0 ? std::sqrt(residual_squared / b_squared) : std::sqrt(residual_squared);
  outcome.error_max = error;
  outcome.seconds = solution.seconds;
  outcome.triad_bytes_per_second = triad;
  outcome.instruction_set = kernels().name;
  outcome.history = std::move(history);
  outcome.cell_times = std::move(times);
  outcome.picture = std::move(picture);
}

namespace {

enum Type { to_row_start = 11, to_cell_0 = 12 };

/// The place of sample s, in unknowns: the sample lies at (s + 1/2) / side of the square, and unknown i at
/// (i + 1) / (total + 1).
double place_of(int s, int total, int side) { return (s + 0.5) / side * (total + 1) - 1; }

/// The unknown whose cell provides the sample: the next one to its west (or south), or the first.
int provider_of(int s, int total, int side) {
  return std::max(static_cast<int>(std::floor(place_of(s, total, side))), 0);
}

int bytes_of_floats(std::size_t count) { return static_cast<int>(count * sizeof(float)); }

}  // namespace

Range samples_of(Range part, int total, int side) {
  // provider_of() grows with s, so the samples of a part are consecutive.
  const auto first_from = [&](int unknown) {
    int s = 0;
    while (s < side && provider_of(s, total, side) < unknown) ++s;
    return s;
  };
  const int first = first_from(part.first);
  return {first, first_from(part.end()) - first};
}

std::vector<float> sample_block(const Field& u, const Block& block, int side) {
  const Range columns = samples_of(block.x, block.grid.nx, side);
  const Range rows = samples_of(block.y, block.grid.ny, side);
  std::vector<float> samples;
  samples.reserve(static_cast<std::size_t>(columns.count) * static_cast<std::size_t>(rows.count));
  for (int t = rows.first; t < rows.end(); ++t) {
    const double y = place_of(t, block.grid.ny, side);
    const int j = static_cast<int>(std::floor(y));
    const double* south = u.row(j - block.y.first);
    const double* north = u.row(j - block.y.first + 1);
    for (int s = columns.first; s < columns.end(); ++s) {
      const double x = place_of(s, block.grid.nx, side);
      const int i = static_cast<int>(std::floor(x));
      const int at = i - block.x.first;
      const double below = std::lerp(south[at], south[at + 1], x - i);
      const double above = std::lerp(north[at], north[at + 1], x - i);
      samples.push_back(static_cast<float>(std::lerp(below, above, y - j)));
    }
  }
  return samples;
}

std::vector<float> gather_samples(const Field& u, const Block& block, int side) {
  std::vector<float> mine = sample_block(u, block, side);
  if (block.cell_x > 0) {
    xy_send(-block.cell_x, 0, to_row_start, mine.data(), bytes_of_floats(mine.size()));
    return {};
  }

  // The first cell of a row puts the samples of the row's cells side by side.
  const auto width = static_cast<std::size_t>(side);
  const Range rows = samples_of(block.y, block.grid.ny, side);
  std::vector<float> strip(width * static_cast<std::size_t>(rows.count));
  for (int cell_x = 0; cell_x < block.cells.nx; ++cell_x) {
    const Range columns = samples_of(part_of(block.grid.nx, block.cells.nx, cell_x), block.grid.nx, side);
    const auto count = static_cast<std::size_t>(columns.count);
    if (cell_x > 0) {
      mine.resize(count * static_cast<std::size_t>(rows.count));
      xy_recvs(cell_x, 0, to_row_start, mine.data(), bytes_of_floats(mine.size()));
    }
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows.count); ++row) {
      std::copy_n(&mine[row * count], count, &strip[row * width + static_cast<std::size_t>(columns.first)]);
    }
  }
  if (block.cell_y > 0) {
    xy_send(0, -block.cell_y, to_cell_0, strip.data(), bytes_of_floats(strip.size()));
    return {};
  }

  // Cell 0 stacks the strips.
  std::vector<float> picture(width * width);
  std::copy(strip.begin(), strip.end(), picture.begin());
  for (int cell_y = 1; cell_y < block.cells.ny; ++cell_y) {
    const Range part = samples_of(part_of(block.grid.ny, block.cells.ny, cell_y), block.grid.ny, side);
    xy_recvs(0, cell_y, to_cell_0, picture.data() + width * static_cast<std::size_t>(part.first),
             bytes_of_floats(width * static_cast<std::size_t>(part.count)));
  }
  return picture;
}

namespace {

double measure_triad(Fields& fields) {
  constexpr double bytes_wanted = 128e6;  // about a millisecond's work per thread
  constexpr int repetitions_max = 200;
  const double bytes = 24.0 * static_cast<double>(fields.x.stride()) * fields.x.ny();
  double all_bytes = 0;
  xy_dsum(bytes, &all_bytes);
  const int repetitions = static_cast<int>(std::clamp(bytes_wanted / all_bytes, 3.0, double{repetitions_max}));

  // The three fields take turns, because the solver reads and writes each of them.
  Field* turn[] = {&fields.x, &fields.r, &fields.p};
  double busy = 0;
  for (int i = -2; i < repetitions; ++i) {
    sync(0, 0);
    const double began = dgettime();
    kernels().triad(*turn[0], *turn[1], *turn[2], 0.5);
    if (i >= 0) busy += dgettime() - began;  // the first two only warm up
    std::rotate(turn, turn + 1, turn + 3);
  }
  double all_busy = 0;
  xy_dsum(busy, &all_busy);
  return all_bytes * repetitions / all_busy;
}

std::vector<CellTimes> collect_times(CellTimes mine) {
  constexpr int times_type = 20;  // message type
  if (getcid() != 0) {
    l_asend(0, 0, times_type, &mine, sizeof mine);
    return {};
  }
  std::vector<CellTimes> all{mine};
  all.resize(static_cast<std::size_t>(getncel()));
  for (int cell = 1; cell < getncel(); ++cell) {
    l_arecv(cell, 0, times_type);                                      // waits; the library keeps the message
    readmsg(&all[static_cast<std::size_t>(cell)], sizeof(CellTimes));  // copies it
  }
  return all;
}

}  // namespace

}  // namespace scg
