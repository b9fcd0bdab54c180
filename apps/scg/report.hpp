// SPDX-License-Identifier: MIT
// What a run tells: a progress bar, text for people, a JSON object for programs, the history as CSV.
#pragma once

#include <string>

#include "job.hpp"
#include "picture.hpp"

namespace scg {

/// Speeds that follow from a run.
struct Speed {
  double mflops = 0;
  double bytes_per_second = 0;
  Speed(const Job& job, const Outcome& outcome);
};

[[nodiscard]] std::string text_report(const Job& job, const Outcome& outcome);

/// One line, without the line's end.
[[nodiscard]] std::string json_report(const Job& job, const Outcome& outcome);

/// Writes "iteration,residual" and a line per iteration. Throws std::runtime_error naming the file and the cause.
void write_history(const std::string& path, const Outcome& outcome);

[[nodiscard]] Caption caption_of(const Job& job, const Outcome& outcome);

class Progress {
 public:
  /// `on` false: does nothing at all.
  Progress(bool on, double tolerance) : on_(on), tolerance_(tolerance) {}

  /// Cheap: looks at the clock once in 32 iterations, draws at most ten times a second. `residual` is relative.
  void show(int iteration, double residual);

  /// Takes the bar away.
  void clear();

  /// True when stderr is a terminal that a bar can be drawn on.
  [[nodiscard]] static bool possible();

 private:
  void draw(int iteration, double residual);

  bool on_;
  bool drawn_ = false;
  double tolerance_;
  double next_ = 0;
};

}  // namespace scg
