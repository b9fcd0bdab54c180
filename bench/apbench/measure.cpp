// SPDX-License-Identifier: MIT
#include "measure.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

namespace apbench {
namespace {

constexpr std::uint64_t count_max = 50'000'000;

double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = place - static_cast<double>(below);
  return sorted[below] * (1 - share) + sorted[above] * share;
}

// The number of operations that fills a sample. It is determined twice, because cold caches and page faults spoil the
// first answer.
std::uint64_t calibrate(const Measurement& m, double sample_seconds) {
  if (!m.calibrated || sample_seconds <= 0) return 1;
  std::uint64_t count = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double seconds = std::max(m.run(count), 1e-9);
    const double wanted = static_cast<double>(count) * sample_seconds / seconds;
    const auto next = static_cast<std::uint64_t>(std::clamp(wanted, 1.0, static_cast<double>(count_max)));
    if (next <= count) return next;
    // A short trial overstates the time of one operation, or understates it by the clock's resolution. So approach in
    // steps.
    count = std::min<std::uint64_t>(next, count * 200);
  }
  return count;
}

class Progress {
 public:
  Progress() : shown_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const char* what, const Measurement& m, int round, int rounds) const {
    if (!shown_) return;
    std::fputs(fmt::format("\r\033[K{} {} of {}: {} {}", what, round + 1, rounds, m.bench, m.case_name).c_str(),
               stderr);
    std::fflush(stderr);
  }

 private:
  bool shown_;
};

}  // namespace

Summary summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {quantile(values, 0.5), quantile(values, 0.1), quantile(values, 0.9)};
}

std::vector<Result> measure(const Plan& plan, const Pace& pace) {
  const Progress progress;
  std::vector<std::uint64_t> counts;
  for (const Measurement& m : plan) {
    progress.step("calibrating", m, static_cast<int>(counts.size()), static_cast<int>(plan.size()));
    counts.push_back(calibrate(m, pace.sample_seconds));
  }
  std::vector<std::vector<double>> values(plan.size());
  for (int round = 0; round < pace.samples; ++round) {
    for (std::size_t i = 0; i < plan.size(); ++i) {
      if (round >= plan[i].samples_max) continue;
      progress.step("sample", plan[i], round, pace.samples);
      values[i].push_back(plan[i].value(plan[i].run(counts[i]), counts[i]));
    }
  }
  std::vector<Result> results;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    results.push_back({plan[i].bench, plan[i].case_name, plan[i].bytes, summarize(values[i]), plan[i].unit});
  }
  return results;
}

double nanoseconds_per_operation(double seconds, std::uint64_t count) {
  return seconds * 1e9 / static_cast<double>(count);
}

std::function<double(double, std::uint64_t)> gigabytes_per_second(std::size_t bytes) {
  return [bytes](double seconds, std::uint64_t count) {
    return static_cast<double>(bytes) * static_cast<double>(count) / seconds / 1e9;
  };
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace apbench
