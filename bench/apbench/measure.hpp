// SPDX-License-Identifier: MIT
// Measuring: a plan of measurements, sampled in turn so that a slow moment of the machine hits all alike, and
// summed up by median and spread.
//
//   Plan plan;
//   plan.push_back({.bench = "switch", .case_name = "one-cell", .bytes = 0, .unit = "ns", .run = ..., .value =
//   nanoseconds_per_operation});
//   std::vector<Result> results = measure(plan, settings);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace apbench {

/// Median of the samples, and their 10th and 90th percentile.
struct Summary {
  double median = 0;
  double low = 0;
  double high = 0;
};

/// Sorts a copy; quantiles are interpolated linearly between neighbours. Requires: at least one value.
[[nodiscard]] Summary summarize(std::vector<double> values);

/// One figure: how to take one sample of it.
struct Measurement {
  std::string bench;
  std::string case_name;
  std::size_t bytes = 0;
  std::string unit;

  /// Runs `count` operations after a warm-up of its own and returns the seconds that the `count` took.
  std::function<double(std::uint64_t count)> run;
  /// The figure of one sample.
  std::function<double(double seconds, std::uint64_t count)> value;

  int samples_max = 1'000'000;  ///< Fewer samples than asked for, where one takes seconds.
  bool calibrated = true;       ///< False: `run` decides itself how much it does; it gets count 1.
};

using Plan = std::vector<Measurement>;

/// A measured figure, as printed.
struct Result {
  std::string bench;
  std::string case_name;
  std::size_t bytes = 0;
  Summary summary;
  std::string unit;
};

/// How long and how often.
struct Pace {
  int samples = 11;
  double sample_seconds = 0.006;  ///< Aim for the timed part of one sample; 0: as short as can be.
};

/// Takes all samples: round by round through the whole plan. Shows progress on stderr when that is a terminal.
[[nodiscard]] std::vector<Result> measure(const Plan& plan, const Pace& pace);

/// Usual `value` functions.
[[nodiscard]] double nanoseconds_per_operation(double seconds, std::uint64_t count);
/// Gigabytes per second (10^9) where one operation moves `bytes`.
[[nodiscard]] std::function<double(double, std::uint64_t)> gigabytes_per_second(std::size_t bytes);

/// Seconds on a clock that never goes back.
[[nodiscard]] double now_seconds();

}  // namespace apbench
