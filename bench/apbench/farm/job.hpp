// SPDX-License-Identifier: MIT
// A job of the finance benchmark: tasks that take their data, sleep, and give data back, on a farm of this computer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aplib/farm.hpp"

namespace apbench::farm {

struct Job {
  unsigned nodes = 1;            ///< Workers.
  std::vector<double> sleeps{};  ///< Seconds, one for each task.
  std::uint64_t task_bytes = 0;
  std::uint64_t shared_bytes = 0;
  std::uint64_t write_bytes = 0;
};

/// When things happened to a task, in seconds since the job began: before its farm was made.
struct TaskTimes {
  double submit = 0;
  double calc_in = 0;   ///< Its worker has all data.
  double calc_out = 0;  ///< It has slept; now it makes its output.
  double retrieve = 0;  ///< The job has the output.
  std::string host{};
};

/// Memory that the job needs at once, by its data.
[[nodiscard]] std::uint64_t bytes_needed(const Job& job, aplib::farm::Where where);
/// Memory that this computer can give, as the kernel estimates it.
[[nodiscard]] std::uint64_t bytes_available();

/// Runs it. All bytes are written, moved and checked. Common data stand once in memory, from where each worker reads
/// them before its first task. Throws aplib::Error: also when a task fails or gets other bytes.
[[nodiscard]] std::vector<TaskTimes> run(const Job& job, aplib::farm::Where where);

/// The paper's columns, a line for each task: tid, sleep time, submit, calc-in, calc-out, retrieve, host name.
[[nodiscard]] std::string columns(const Job& job, const std::vector<TaskTimes>& times);

}  // namespace apbench::farm
