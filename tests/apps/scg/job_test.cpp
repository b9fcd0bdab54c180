// SPDX-License-Identifier: MIT
#include "job.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "kernels.hpp"

namespace scg {
namespace {

TEST(Problem, SourcesBelongToTheirSolutions) {
  // Fourth-order differences of the solution, at a point without symmetry.
  const double h = 1e-3;
  for (const Problem& problem : problems()) {
    if (problem.solution == nullptr) continue;
    SCOPED_TRACE(problem.name);
    const Charge places[] = {{0.3, 0.7, 0}, {0.81, 0.12, 0}, {0.5, 0.5, 0}};
    for (const Charge& place : places) {
      const double x = place.x;
      const double y = place.y;
      const auto second = [&](double dx, double dy) {
        const auto u = [&](int steps) { return problem.solution(x + steps * dx, y + steps * dy); };
        return (-u(-2) + 16 * u(-1) - 30 * u(0) + 16 * u(1) - u(2)) / (12 * h * h);
      };
      const double scale = 1 + std::abs(problem.source(x, y));
      EXPECT_NEAR(problem.source(x, y), -(second(h, 0) + second(0, h)), 1e-7 * scale);
    }
  }
}

TEST(Problem, NamesAreFoundAndListed) {
  EXPECT_EQ(problem_names(), "steep, sine, polynomial, harmonic, charges");
  for (const Problem& problem : problems()) EXPECT_EQ(find_problem(problem.name)->name, problem.name);
  EXPECT_EQ(find_problem("cosine"), nullptr);
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_charge(text);
    return "accepted";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Charge, IsReadOrRefusedInWords) {
  const Charge charge = parse_charge("0.25,0.5,-3e-1");
  EXPECT_EQ(charge.x, 0.25);
  EXPECT_EQ(charge.y, 0.5);
  EXPECT_EQ(charge.q, -0.3);
  EXPECT_EQ(refusal("0.5,0.5"),
            "\"0.5,0.5\" is not a charge: it needs three numbers separated by commas; use x,y,q with 0 < x < 1 and 0 < "
            "y < 1, for "
            "example 0.3,0.5,-1");
  EXPECT_NE(refusal("1,0.5,1").find("it lies outside the square"), std::string::npos);
  EXPECT_NE(refusal("nan,0.5,1").find("its numbers must be finite"), std::string::npos);
  EXPECT_NE(refusal("0.5,0.5,1,2").find("something follows the third number"), std::string::npos);
  EXPECT_NE(refusal("").find("it needs three numbers"), std::string::npos);
}

TEST(GridOption, TakesOneNumberOrTwo) {
  EXPECT_EQ(parse_grid("300"), (GridSize{300, 300}));
  EXPECT_EQ(parse_grid("400x3"), (GridSize{400, 3}));
}

TEST(GridOption, RefusesEverythingElseInWords) {
  for (const char* text :
       {"", "0", "-3", "3x", "x3", "3x0", "3x4x5", "3 x 4", "1e3", "100001", "99999999999999999999"}) {
    try {
      (void)parse_grid(text);
      ADD_FAILURE() << "accepted \"" << text << "\"";
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), "\"" + std::string(text) +
                                  "\" is not a grid: use N or NXxNY with 1 to 100000 unknowns in each direction, for "
                                  "example 300 or 400x300");
    }
  }
}

// Jobs and outcomes arrive complete, and contain no pointer of the sender.

TEST(Wire, AJobArrivesWithItsProblem) {
  Job job;
  job.grid = {400, 301};
  job.problem = *find_problem("charges");
  job.problem.charges = {{0.25, 0.5, -1}, {0.75, 0.5, 2}};
  job.tolerance = 1e-11;
  job.iterations_max = 77;
  job.picture_side = 640;
  job.wants_history = true;
  job.shows_progress = true;
  const Job arrived = unpack_job(pack(job));
  EXPECT_EQ(arrived.grid, job.grid);
  EXPECT_EQ(arrived.problem.name, "charges");
  EXPECT_EQ(arrived.problem.solution, nullptr);
  ASSERT_EQ(arrived.problem.charges.size(), 2U);
  EXPECT_EQ(arrived.problem.charges[1].x, 0.75);
  EXPECT_EQ(arrived.problem.charges[1].q, 2);
  EXPECT_EQ(arrived.tolerance, 1e-11);
  EXPECT_EQ(arrived.iterations_max, 77);
  EXPECT_EQ(arrived.picture_side, 640);
  EXPECT_TRUE(arrived.wants_history);
  EXPECT_TRUE(arrived.shows_progress);
}

TEST(Wire, AnOutcomeArrivesToTheLastBit) {
  Outcome outcome;
  outcome.cells = {3, 2};
  outcome.iterations = 321;
  outcome.converged = true;
  outcome.residual = 0.1;
  outcome.true_residual = 1.0 / 3;
  outcome.error_max = 1e-300;
  outcome.seconds = 2;
  outcome.threads = 5;
  outcome.triad_bytes_per_second = 1e11;
  outcome.instruction_set = kernels().name;
  outcome.history = {1, 0.1, 1e-9};
  outcome.cell_times = {{1, 2}, {3, 4}};
  outcome.picture = {0.5F, -0.25F};
  const Outcome arrived = unpack_outcome(pack(outcome));
  EXPECT_EQ(arrived.cells, outcome.cells);
  EXPECT_EQ(arrived.iterations, 321);
  EXPECT_TRUE(arrived.converged);
  EXPECT_EQ(arrived.residual, outcome.residual);
  EXPECT_EQ(arrived.true_residual, outcome.true_residual);
  EXPECT_EQ(arrived.error_max, 1e-300);
  EXPECT_EQ(arrived.seconds, 2);
  EXPECT_EQ(arrived.threads, 5);
  EXPECT_EQ(arrived.triad_bytes_per_second, 1e11);
  EXPECT_STREQ(arrived.instruction_set, outcome.instruction_set);
  EXPECT_EQ(arrived.history, outcome.history);
  ASSERT_EQ(arrived.cell_times.size(), 2U);
  EXPECT_EQ(arrived.cell_times[1].message_seconds, 4);
  EXPECT_EQ(arrived.picture, outcome.picture);
}

TEST(Wire, DamagedMessagesAreRefused) {
  std::vector<std::byte> bytes = pack(Job{.problem = *find_problem("steep")});
  EXPECT_NO_THROW((void)unpack_job(bytes));
  bytes.push_back(std::byte{0});
  EXPECT_THROW((void)unpack_job(bytes), std::runtime_error);
  bytes.erase(bytes.end() - 9, bytes.end());
  EXPECT_THROW((void)unpack_job(bytes), std::runtime_error);
  EXPECT_THROW((void)unpack_outcome({}), std::runtime_error);
}

}  // namespace
}  // namespace scg
