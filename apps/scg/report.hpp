// SPDX-License-Identifier: MIT
// What a run tells: a progress bar, text for people, a JSON object for programs, the history as CSV; and how it writes.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "job.hpp"
#include "picture.hpp"

namespace scg {

/// Writes the text, and at once. False when that is not possible (errno says why): nothing is thrown, since who
/// cannot be told is no reason to end.
[[nodiscard]] bool say(std::FILE* stream, std::string_view text);

/// A file that is there as a whole or not at all: a regular one is written beside its name and renamed at the end.
/// What else stands under the name (a device, a pipe) is written as it is, and never removed. Every member throws
/// std::runtime_error naming the file and the cause.
class OutputFile {
 public:
  OutputFile(std::string what, const std::string& path);  ///< `what`: for the message, "picture".
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  [[nodiscard]] std::FILE* stream() { return stream_; }
  void finish();
  [[noreturn]] void fail(const std::string& cause) const;

 private:
  std::string what_;
  std::string path_;       ///< As the user wrote it.
  std::string target_;     ///< Where links lead.
  std::string temporary_;  ///< Empty: written in place.
  std::FILE* stream_ = nullptr;
};

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
