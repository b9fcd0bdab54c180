// SPDX-License-Identifier: MIT
// Where the cells of a test are: in one process, or in several parts that speak by the loop module, with its faults.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "machines.hpp"
#include "parts.hpp"

namespace aplib::testing_support {

struct Placement {
  std::string name;
  Grid grid;
  std::uint32_t threads;
  std::vector<std::uint32_t> parts;  ///< Cells of each; none: one process.
  comm::LoopFaults faults;

  friend void PrintTo(const Placement& placement, std::ostream* out) { *out << placement.name; }
};

inline void run_on(const Placement& placement, const std::function<void()>& program, std::uint64_t seed = 1) {
  if (placement.parts.empty()) return run_well({placement.grid, placement.threads}, program);
  Parts parts(placement.grid, placement.parts, placement.threads, placement.faults, seed);
  const PartsOutcome outcome = parts.run(program);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.failure(), "");
  EXPECT_TRUE(outcome.over);
}

inline std::vector<Placement> placements() {
  return {
      {"one_cell", {1, 1}, 1, {}, {}},
      {"two_processors", {2, 1}, 2, {}, {}},
      {"one_processor", {2, 2}, 1, {}, {}},
      {"nine_on_four", {3, 3}, 4, {}, {}},
      {"per_cell", {2, 2}, Options::threads_per_cell, {}, {}},
      {"two_parts", {2, 1}, 1, {1, 1}, {}},
      {"three_parts", {3, 3}, 2, {4, 1, 4}, {.delay_polls_max = 3, .piece_bytes_max = 3000}},
      {"parts_that_hold_back", {2, 2}, 2, {2, 2}, {.piece_bytes_max = 20'000, .hold_back_bytes = 4096}},
  };
}

inline std::string placement_name(const testing::TestParamInfo<Placement>& info) { return info.param.name; }

}  // namespace aplib::testing_support
