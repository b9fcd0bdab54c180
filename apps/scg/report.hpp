// SPDX-License-Identifier: MIT
// What a run tells: text for people, a JSON object for programs, the history as CSV.
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

}  // namespace scg
