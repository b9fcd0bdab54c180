// SPDX-License-Identifier: MIT
// Measuring: a plan of measurements. They are sampled in turn, so that a slow moment of the computer affects all alike,
// and summarised by median and spread.
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

/// Sorts a copy; quantiles are interpolated linearly between neighbours. REQUIRES: at least one value.
[[nodiscard]] Summary summarize(std::vector<double> values);

/// One figure: how to take one sample of it.
struct Measurement {
  std::string bench;
  std::string case_name;
  std::size_t bytes = 0;
  std::string unit;

  /// Runs `count` operations after its own warm-up, and returns the seconds that these took.
  std::function<double(std::uint64_t count)> run;
  /// The figure of one sample.
  std::function<double(double seconds, std::uint64_t count)> value;

  int samples_max = 1'000'000;  ///< The largest number of samples, where one takes seconds.
  bool calibrated = true;       ///< False: `run` decides how much it does, and gets count 1.
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

/// How long and how often to measure.
struct Pace {
  int samples = 11;
  double sample_seconds = 0.006;  ///< The aim for the timed part of one sample; 0: as short as possible.
};

/// Takes all samples, round by round through the whole plan. Shows progress on stderr if that is a terminal.
[[nodiscard]] std::vector<Result> measure(const Plan& plan, const Pace& pace);

/// The usual `value` functions.
[[nodiscard]] double nanoseconds_per_operation(double seconds, std::uint64_t count);
/// Gigabytes (10^9) per second, if one operation moves `bytes`.
[[nodiscard]] std::function<double(double, std::uint64_t)> gigabytes_per_second(std::size_t bytes);

/// Seconds on a monotonic clock.
[[nodiscard]] double now_seconds();

}  // namespace apbench
