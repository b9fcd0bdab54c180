// SPDX-License-Identifier: MIT
// Helpers to run programs on machines of several shapes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "aplib/aplib.hpp"
#include "checks.hpp"

namespace aplib::testing_support {

/// A shape of machine for parametrised tests.
struct Shape {
  Grid cells;
  std::uint32_t threads;

  friend void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name(); }
  [[nodiscard]] std::string name() const {
    std::string text = std::to_string(cells.nx) + "x" + std::to_string(cells.ny);
    text += threads == Options::threads_per_cell ? "_per_cell" : "_on_" + std::to_string(threads);
    return text;
  }
};

inline std::string shape_name(const testing::TestParamInfo<Shape>& info) { return info.param.name(); }

inline Options options_of(const Shape& shape) {
  Options options;
  options.cells = shape.cells;
  options.threads = shape.threads;
  options.bind = false;  // several tests run at once
  return options;
}

inline Report run(const Shape& shape, std::function<void()> program) {
  Machine machine(options_of(shape));
  return machine.run(std::move(program));
}

/// Runs and expects success.
inline void run_well(const Shape& shape, std::function<void()> program) {
  const Report report = run(shape, std::move(program));
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_EQ(report.reason, "");
}

/// The resident bytes of this process.
inline std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size_pages = 0;
  std::uint64_t resident_pages = 0;
  statm >> size_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Bytes that are available without swapping.
inline std::uint64_t available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string word;
  while (meminfo >> word) {
    std::uint64_t kib = 0;
    if (word == "MemAvailable:" && meminfo >> kib) return kib * 1024;
  }
  return 0;
}

constexpr CellId cell(std::uint32_t number) { return CellId{number}; }
inline std::uint32_t me() { return index(this_cell::id()); }

}  // namespace aplib::testing_support
