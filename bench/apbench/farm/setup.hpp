// SPDX-License-Identifier: MIT
// The input of the finance benchmark: an XML file with the job's parameters, and the file that it names, with the time
// of each task.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apbench::farm {

/// 1 KB is 1,000 bytes, as in the rates of the paper.
constexpr double bytes_of_kb = 1000;

constexpr std::uint64_t tasks_max = 1'000'000;
constexpr unsigned nodes_max = 10'000;

struct Setup {
  std::uint64_t tasks = 0;
  unsigned nodes = 0;
  std::string input_file;  ///< As the setup file names it.
  double task_kb = 0;
  double shared_kb = 0;
  double write_kb = 0;
  std::vector<double> sleeps;  ///< Seconds of each task.
};

/// Reads both files. A relative InputFile is beside the setup file. Throws aplib::Error(bad_option), whose text has
/// file, line, what stands there, and the remedy.
[[nodiscard]] Setup read_setup(const std::string& path);

}  // namespace apbench::farm
