// SPDX-License-Identifier: MIT
// The linear system, and the whole cell program on real machines in this process.
#include <gtest/gtest.h>

#include <aplib/aplib.hpp>
#include <cmath>
#include <vector>

#include "cell.hpp"
#include "solver.hpp"

namespace scg {
namespace {

TEST(System, ChargesKeepTheirSumAndPlaceHoweverTheGridIsCut) {
  Problem problem = *find_problem("charges");
  problem.charges = {{0.37, 0.61, 2.5}};
  const GridSize grid{23, 17};
  const Stencil stencil(grid);
  for (const GridSize cells : {GridSize{1, 1}, GridSize{3, 2}, GridSize{23, 17}}) {
    double sum = 0;
    double x = 0;
    double y = 0;
    for (int cell_y = 0; cell_y < cells.ny; ++cell_y) {
      for (int cell_x = 0; cell_x < cells.nx; ++cell_x) {
        const Block block = block_of(grid, cells, cell_x, cell_y);
        Field b(block.x.count, block.y.count);
        fill_right_side(b, problem, block);
        for (int j = 0; j < b.ny(); ++j) {
          for (int i = 0; i < b.nx(); ++i) {
            const double q = b.row(j)[i] * stencil.diagonal * stencil.hx * stencil.hy;
            sum += q;
            x += q * stencil.x(block.x.first + i);
            y += q * stencil.y(block.y.first + j);
          }
        }
      }
    }
    EXPECT_NEAR(sum, 2.5, 1e-12);
    EXPECT_NEAR(x / sum, 0.37, 1e-12);
    EXPECT_NEAR(y / sum, 0.61, 1e-12);
  }
}

TEST(System, TheExactSolutionLeavesAResidualThatShrinksAsHSquared) {
  // b - A u of the exact solution, times the diagonal, is the truncation error of the stencil.
  for (const Problem& problem : problems()) {
    if (problem.solution == nullptr) continue;
    SCOPED_TRACE(problem.name);
    const auto truncation = [&](int n) {
      const GridSize grid{n, n};
      const Block block = block_of(grid, {1, 1}, 0, 0);
      const Stencil stencil(grid);
      Field b(n, n);
      Field u(n, n);
      fill_right_side(b, problem, block);
      for (int j = 0; j < n; ++j) {
        for (int i = 0; i < n; ++i) u.row(j)[i] = problem.solution(stencil.x(i), stencil.y(j));
      }
      return std::sqrt(squared_residual(b, u, block)) / n * stencil.diagonal;
    };
    const double ratio = truncation(31) / truncation(63);
    EXPECT_GT(ratio, 3.6);
    EXPECT_LT(ratio, 4.4);
  }
}

TEST(System, EdgeValuesFillTheHaloOnlyAtTheEdge) {
  const Problem& problem = *find_problem("harmonic");
  const Block block = block_of({8, 6}, {2, 1}, 1, 0);  // east half
  Field u(block.x.count, block.y.count);
  fill_edge(u, problem, block);
  const Stencil stencil(block.grid);
  EXPECT_EQ(u.row(2)[-1], 0) << "the west halo is a neighbour's";
  EXPECT_EQ(u.row(2)[4], problem.solution(1, stencil.y(2)));
  EXPECT_EQ(u.row(-1)[1], problem.solution(stencil.x(block.x.first + 1), 0));
  EXPECT_EQ(u.row(6)[4], problem.solution(1, 1));
}

Job job_of(const char* problem, GridSize grid, double tolerance = 1e-10) {
  Job job;
  job.problem = *find_problem(problem);
  job.grid = grid;
  job.tolerance = tolerance;
  job.iterations_max = default_iterations_max(grid);
  return job;
}

Outcome run(const Job& job, aplib::Grid cells, std::uint32_t threads) {
  aplib::Options options;
  options.cells = cells;
  options.threads = threads;
  aplib::Machine machine(options);
  Outcome outcome;
  const aplib::Report report = machine.run([&] { cell_program(job, outcome); });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  return outcome;
}

TEST(Solver, ErrorShrinksAsHSquared) {
  for (const Problem& problem : problems()) {
    if (problem.solution == nullptr) continue;
    SCOPED_TRACE(problem.name);
    const auto error = [&](int n) {
      const Outcome outcome = run(job_of(problem.name.data(), {n, n}, 1e-12), {2, 2}, 2);
      EXPECT_TRUE(outcome.converged);
      return outcome.error_max;
    };
    const double coarse = error(31);  // h = 1/32
    const double fine = error(63);    // h = 1/64
    EXPECT_GT(coarse / fine, 3.7);
    EXPECT_LT(coarse / fine, 4.3);
  }
}

TEST(Solver, EveryNumberOfThreadsGivesTheSameBits) {
  Job job = job_of("steep", {45, 38});
  job.wants_history = true;
  const Outcome reference = run(job, {3, 2}, 1);
  EXPECT_TRUE(reference.converged);
  for (const std::uint32_t threads : {2U, 3U, aplib::Options::threads_per_cell}) {
    const Outcome other = run(job, {3, 2}, threads);
    EXPECT_EQ(other.iterations, reference.iterations);
    EXPECT_EQ(other.residual, reference.residual);
    EXPECT_EQ(other.history, reference.history);
    EXPECT_EQ(other.error_max, reference.error_max);
  }
}

TEST(Solver, EveryGridOfCellsGivesTheSameAnswer) {
  for (const char* problem : {"steep", "harmonic", "charges"}) {
    Job job = job_of(problem, {17, 13});
    job.picture_side = 40;
    const Outcome reference = run(job, {1, 1}, 1);
    for (const aplib::Grid cells :
         {aplib::Grid{2, 1}, aplib::Grid{1, 2}, aplib::Grid{5, 3}, aplib::Grid{17, 1}, aplib::Grid{17, 13}}) {
      SCOPED_TRACE(testing::Message() << problem << " on " << cells.nx << "x" << cells.ny);
      const Outcome outcome = run(job, cells, 2);
      EXPECT_TRUE(outcome.converged);
      EXPECT_NEAR(outcome.iterations, reference.iterations, 2);
      EXPECT_NEAR(outcome.true_residual, outcome.residual, 1e-12);
      EXPECT_NEAR(outcome.error_max, reference.error_max, 1e-8);
      EXPECT_EQ(outcome.cell_times.size(), cells.count());
      ASSERT_EQ(outcome.picture.size(), 1600U);
      for (std::size_t i = 0; i < 1600; ++i) ASSERT_NEAR(outcome.picture[i], reference.picture[i], 1e-6);
    }
  }
}

TEST(Solver, OneUnknown) {
  const Outcome outcome = run(job_of("polynomial", {1, 1}), {1, 1}, 1);
  EXPECT_TRUE(outcome.converged);
  EXPECT_EQ(outcome.iterations, 1);
  EXPECT_LT(outcome.true_residual, 1e-14);
}

TEST(Solver, NothingToDo) {
  Job job = job_of("charges", {10, 10});
  job.problem.charges.clear();
  const Outcome outcome = run(job, {2, 1}, 2);
  EXPECT_TRUE(outcome.converged);
  EXPECT_EQ(outcome.iterations, 0);
  EXPECT_EQ(outcome.residual, 0);
  EXPECT_EQ(outcome.true_residual, 0);
}

TEST(Solver, StopsAtTheLargestNumberOfIterations) {
  Job job = job_of("steep", {60, 60});
  job.wants_history = true;
  for (const int most : {0, 1, 2, 7}) {
    job.iterations_max = most;
    const Outcome outcome = run(job, {2, 2}, 2);
    EXPECT_FALSE(outcome.converged);
    EXPECT_EQ(outcome.iterations, most);
    EXPECT_EQ(outcome.history.size(), static_cast<std::size_t>(most) + 1);
    EXPECT_EQ(outcome.history.front(), 1.0);
    EXPECT_EQ(outcome.history.back(), outcome.residual);
    EXPECT_NEAR(outcome.true_residual, outcome.residual, 1e-12) << "x must contain every step, also an odd last one";
  }
}

/// Textbook conjugate gradients, with two separate sums and every vector stored.
int textbook_iterations(const Job& job) {
  const int nx = job.grid.nx;
  const int ny = job.grid.ny;
  const Stencil stencil(job.grid);
  Field r(nx, ny);
  fill_right_side(r, job.problem, block_of(job.grid, {1, 1}, 0, 0));
  Field p(nx, ny);
  Field q(nx, ny);
  const auto dot = [&](const Field& a, const Field& b) {
    double sum = 0;
    for (int j = 0; j < ny; ++j) {
      for (int i = 0; i < nx; ++i) sum += a.row(j)[i] * b.row(j)[i];
    }
    return sum;
  };
  const double b_b = dot(r, r);
  double r_r = b_b;
  double beta = 0;
  int iteration = 0;
  for (; std::sqrt(r_r / b_b) > job.tolerance; ++iteration) {
    for (int j = 0; j < ny; ++j) {
      for (int i = 0; i < nx; ++i) p.row(j)[i] = r.row(j)[i] + beta * p.row(j)[i];
    }
    for (int j = 0; j < ny; ++j) {
      for (int i = 0; i < nx; ++i) {
        q.row(j)[i] = p.row(j)[i] - stencil.cx * (p.row(j)[i - 1] + p.row(j)[i + 1]) -
                      stencil.cy * (p.row(j - 1)[i] + p.row(j + 1)[i]);
      }
    }
    const double alpha = r_r / dot(p, q);
    for (int j = 0; j < ny; ++j) {
      for (int i = 0; i < nx; ++i) r.row(j)[i] -= alpha * q.row(j)[i];
    }
    const double next = dot(r, r);
    beta = next / r_r;
    r_r = next;
  }
  return iteration;
}

TEST(Solver, OneSumPointPerIterationConvergesLikeTheTextbook) {
  for (const char* problem : {"steep", "harmonic", "charges", "polynomial"}) {
    for (const double tolerance : {1e-6, 1e-10, 1e-13}) {
      SCOPED_TRACE(testing::Message() << problem << ", tolerance " << tolerance);
      const Job job = job_of(problem, {90, 70}, tolerance);
      const int textbook = textbook_iterations(job);
      const Outcome outcome = run(job, {2, 2}, 2);
      EXPECT_TRUE(outcome.converged);
      EXPECT_NEAR(outcome.iterations, textbook, 1 + 0.01 * textbook);
      EXPECT_LT(outcome.true_residual, tolerance + 1e-12);  // 1e-12: what rounding leaves on this grid
    }
  }
}

}  // namespace
}  // namespace scg
