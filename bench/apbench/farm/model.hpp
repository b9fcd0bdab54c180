// SPDX-License-Identifier: MIT
// The model of the paper's section 5.5.7: what a job takes beyond its work.
//
//   total = work + start-up + per core x cores + queueing x tasks
//         + task data x tasks / rate + common data x cores / rate + output x tasks / rate
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace apbench::farm {

struct Observation {
  double cores = 0;
  double tasks = 0;
  double task_bytes = 0;
  double shared_bytes = 0;
  double write_bytes = 0;
  double work = 0;   ///< Seconds that the sleeping alone takes.
  double total = 0;  ///< Seconds.
};

/// Seconds each: once, for a core, for a task, for a byte of task data, of common data for a core, of output. 0: the
/// observations do not tell it, or it is no more than their noise.
struct Model {
  static constexpr std::size_t terms = 6;
  std::array<double, terms> seconds{};

  [[nodiscard]] double total(const Observation& what) const;
};

/// Least squares of the relative error of what is beyond the work; no term is negative.
[[nodiscard]] Model fit(const std::vector<Observation>& all);

/// The model in words, how well it fits, and the paper's two.
[[nodiscard]] std::string describe(const Model& model, const std::vector<Observation>& all);

}  // namespace apbench::farm
