// SPDX-License-Identifier: MIT
// What host program and cells tell each other arrives whole, without a pointer of the sender.
#include "wire.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels.hpp"

namespace scg {
namespace {

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
