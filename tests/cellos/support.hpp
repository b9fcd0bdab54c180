// SPDX-License-Identifier: MIT
// Machines for the CellOS tests: a grid, a number of threads, and functions in place of program files.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>

#include "aplib/aplib.hpp"
#include "aplib/cellos.h"

namespace cellos_test {

struct Shape {
  aplib::Grid grid;
  std::uint32_t threads;
};

inline void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.grid.nx << "x" << shape.grid.ny << " on " << shape.threads;
}

/// Runs `cell` as task 0 of every cell.
inline aplib::Report run_cells(const Shape& shape, std::function<void()> cell) {
  aplib::Options options;
  options.cells = shape.grid;
  options.threads = shape.threads;
  return aplib::Machine(options).run(std::move(cell));
}

/// As run_cells; the run must succeed.
inline void expect_cells(const Shape& shape, std::function<void()> cell) {
  const aplib::Report report = run_cells(shape, std::move(cell));
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

/// Runs a host program whose ccreat() starts `cell`. Returns the exit status.
inline int run_program(const Shape& shape, int (*host)(int, char**), void (*cell)()) {
  const std::string cells = std::to_string(shape.grid.nx) + "x" + std::to_string(shape.grid.ny);
  ::setenv("APLIB_CELLS", cells.c_str(), 1);
  ::setenv("APLIB_THREADS", std::to_string(shape.threads).c_str(), 1);
  const int status = cellos_run(host, cell, 0, nullptr);
  ::unsetenv("APLIB_CELLS");
  ::unsetenv("APLIB_THREADS");
  return status;
}

/// A new seed each time, printed; TEST_SEED repeats a run.
inline unsigned seed() {
  const char* given = std::getenv("TEST_SEED");
  const unsigned seed = given != nullptr ? unsigned(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  std::printf("TEST_SEED=%u\n", seed);
  return seed;
}

/// Tests that hold for every shape.
class Shapes : public testing::TestWithParam<Shape> {};

inline std::string shape_name(const testing::TestParamInfo<Shape>& info) {
  const Shape& shape = info.param;
  return std::to_string(shape.grid.nx) + "x" + std::to_string(shape.grid.ny) + "_on_" + std::to_string(shape.threads);
}

inline auto several_shapes() {
  return testing::Values(Shape{{1, 1}, 1}, Shape{{2, 1}, 1}, Shape{{2, 1}, 2}, Shape{{3, 2}, 2}, Shape{{1, 5}, 3},
                         Shape{{4, 4}, 2});
}

}  // namespace cellos_test
