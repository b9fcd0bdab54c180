// SPDX-License-Identifier: MIT
// The method. An iteration of textbook CG is
//
//     alpha = r.r / p.Ap
//     x = x + alpha p;  r = r - alpha A p
//     beta = r.r / (r.r before)
//     p = r + beta p
// It makes two passes over the vectors with a global sum after each, because alpha must be known before r changes, and
// beta before p does. Chronopoulos and Gear (1989) get p.Ap from r.Ar instead:
//
//     p.Ap = r.Ar - beta r.r / alpha_before
//
// So one pass does all the work of an iteration, and both sums follow it. Three things make that pass cheap here:
//
//   * A p is computed where it is needed and never stored, because a stencil costs less than moving a vector.
//   * r.Ar needs no second stencil. With 1 on A's diagonal, it is r.r minus twice the products of neighbouring
//     unknowns, times cx or cy. The pass sums the pairs inside the block. The cell to the west or south of a side sums
//     the pairs across that side.
//   * x is updated in every second iteration, with two steps at once.
//
// The sides of r travel during the first global sum: a cell sends its sides, takes part in the sum, and then finds that
// its neighbours' sides have arrived. The halo of p is never sent; each cell computes it from the halo of r.
#include "solver.hpp"

#include <aplib/cellos.h>

#include <algorithm>
#include <cmath>

#include "kernels.hpp"
#include "report.hpp"

namespace scg {

Stencil::Stencil(GridSize grid)
    : hx(1.0 / (grid.nx + 1)),
      hy(1.0 / (grid.ny + 1)),
      diagonal(2 / (hx * hx) + 2 / (hy * hy)),
      cx(1 / (hx * hx) / diagonal),
      cy(1 / (hy * hy) / diagonal) {}

namespace {

/// Adds a point charge to the four unknowns (or edge points) around it, weighted by distance, so that the centre of
/// charge is exact.
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

namespace {

/// Measures the share of an iteration that messages take. It measures only one iteration in `every`, so that reading
/// the clock costs nothing even in cells of a few hundred unknowns.
class TimeShare {
 public:
  void pass_begins(int iteration) {
    measuring_ = iteration % every == 0;
    if (measuring_) pass_began_ = dgettime();
  }
  void messages_begin() {
    if (measuring_) messages_began_ = dgettime();
  }
  void messages_end() {
    if (!measuring_) return;
    const double now = dgettime();
    all_ += now - pass_began_;
    messages_ += now - messages_began_;
    measuring_ = false;
  }
  [[nodiscard]] double share() const { return all_ > 0 ? messages_ / all_ : 0; }

 private:
  static constexpr int every = 16;
  bool measuring_ = false;
  double pass_began_ = 0;
  double messages_began_ = 0;
  double all_ = 0;
  double messages_ = 0;
};

/// The vectors x, r and p over all cells, and the operations of the method on them. All cells make the same calls, in
/// this order: step(), r_r(), r_Ar(), step(), ..., finish().
class Vectors {
 public:
  Vectors(Fields& fields, Halo& halo, const Block& block) : fields_(fields), halo_(halo), stencil_(block.grid) {
    input_.cx = stencil_.cx;
    input_.cy = stencil_.cy;
  }

  /// p = r + beta p;  x = x + alpha p;  r = r - alpha A p. The first step has alpha = beta = 0 and only sets p = r.
  void step(double alpha, double beta) {
    time_share_.pass_begins(steps_);
    halo_.place_columns(fields_.r);
    input_.alpha_before = input_.alpha;
    input_.alpha = alpha;
    input_.beta = beta;
    input_.add_to_x = steps_ % 2 == 0 && steps_ > 0;  // in every second step, for two steps at once
    sums_ = loops_.pass(fields_.p, fields_.r, fields_.x, input_,
                        {halo_.columns().west.data(), halo_.columns().east.data()});
    ++steps_;
    time_share_.messages_begin();
    halo_.send(fields_.r);  // the neighbours need the sides of the new r
  }

  /// r.r. The neighbours' sides arrive meanwhile.
  double r_r() {
    double sum = 0;
    xy_dsum(sums_.square, &sum);
    halo_.receive(fields_.r);
    return sum;
  }

  /// r.Ar, from the sums over pairs of neighbours inside the block and across its east and north side. At the edge of
  /// the square the halo is 0.
  double r_Ar() {
    const Field& r = fields_.r;
    const double horizontal = loops_.dot(halo_.columns().east.data(), halo_.neighbours().east.data(), r.ny());
    const double vertical = loops_.dot(r.row(r.ny() - 1), r.row(r.ny()), r.nx());
    double sum = 0;
    xy_dsum(sums_.square - 2 * stencil_.cx * (sums_.horizontal + horizontal) -
                2 * stencil_.cy * (sums_.vertical + vertical),
            &sum);
    time_share_.messages_end();
    return sum;
  }

  /// Adds the last step to x if it is still missing.
  void finish() {
    if (steps_ > 0 && steps_ % 2 == 0) loops_.add(fields_.x, fields_.p, input_.alpha);
  }

  [[nodiscard]] double message_share() const { return time_share_.share(); }

 private:
  Fields& fields_;
  Halo& halo_;
  Stencil stencil_;
  const Kernels& loops_ = kernels();
  PassInput input_{};
  PassSums sums_{};
  int steps_ = 0;
  TimeShare time_share_;
};

}  // namespace

Solution solve(Fields& fields, Halo& halo, const Block& block, const Job& job, std::vector<double>* history) {
  Vectors vectors(fields, halo, block);
  Solution solution;
  Progress progress(job.shows_progress && getcid() == 0, job.tolerance);

  sync(0, 0);  // all cells start the clock together
  const double began = dgettime();
  double alpha = 0;
  double beta = 0;
  double r_r_before = 0;
  double b_b = 0;
  for (int k = 0;; ++k) {
    vectors.step(alpha, beta);
    const double r_r = vectors.r_r();

    // Stop here? All cells have the same numbers, so they all decide alike.
    if (k == 0) b_b = r_r;  // x is 0, so r is b
    solution.iterations = k;
    solution.residual = b_b > 0 ? std::sqrt(r_r / b_b) : 0;
    solution.converged = solution.residual <= job.tolerance;
    if (history != nullptr) history->push_back(solution.residual);
    if (solution.converged || k == job.iterations_max || !std::isfinite(r_r)) break;
    progress.show(k, solution.residual);

    const double r_Ar = vectors.r_Ar();
    beta = k == 0 ? 0 : r_r / r_r_before;
    alpha = r_r / (k == 0 ? r_Ar : r_Ar - beta * r_r / alpha);  // the divisor is p.Ap
    r_r_before = r_r;
  }
  vectors.finish();
  sync(0, 0);
  solution.seconds = dgettime() - began;
  progress.clear();
  solution.times = {solution.seconds, solution.seconds * vectors.message_share()};
  return solution;
}

}  // namespace scg
