// SPDX-License-Identifier: MIT
// The six scenarios of the paper's table 5.2, and what it measured with Symphony and Ninf-G.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "job.hpp"
#include "model.hpp"

namespace apbench::farm {

constexpr int scenario_count = 6;

/// One job, with the paper's times.
struct Case {
  unsigned cores = 1;
  std::uint64_t tasks = 1;
  double sleep = 0;  ///< Seconds.
  double task_kb = 0;
  double shared_kb = 0;
  double write_kb = 0;

  [[nodiscard]] double kb() const;  ///< The size that the scenario varies.
};

struct Scenario {
  std::string_view title;
  std::string_view symphony;  ///< What its column has.
  std::string_view ninf_g;
};
[[nodiscard]] const Scenario& scenario(int number);
[[nodiscard]] std::vector<Case> cases(int number);

/// What the paper measured; empty where it has no figure.
struct Peers {
  std::string symphony;
  std::string ninf_g;
};
[[nodiscard]] Peers peers(int number, const Case& one);

/// The case as a job, its sleeps divided by `scale`.
[[nodiscard]] Job job_of(const Case& one, double scale);

/// What a job's times say. Seconds.
struct Figures {
  double total = 0;        ///< With the making of the farm.
  double standing = 0;     ///< From the first submission to the last result.
  double work = 0;         ///< The sleeps alone, on as many workers.
  double first_start = 0;  ///< From the first submission to the first work.
  double all_started = 0;  ///< To the first work of the last worker that gets some at once.
};
/// REQUIRES: tasks of equal length.
[[nodiscard]] Figures figures(const Job& job, const std::vector<TaskTimes>& times);
[[nodiscard]] Observation observation(const Job& job, const Figures& found);

[[nodiscard]] std::string table_head(int number, double scale);
[[nodiscard]] std::string table_row(int number, const Case& one, const Job& job, const Figures& found);
/// A case that was not run, and why.
[[nodiscard]] std::string table_row(int number, const Case& one, std::string_view why);

}  // namespace apbench::farm
