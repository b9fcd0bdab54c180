// SPDX-License-Identifier: MIT
// The output of a run: a progress bar, text for people, a JSON object for programs, the history as CSV, and files.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "job.hpp"
#include "picture.hpp"

namespace scg {

/// Writes the text at once. Returns false if that is not possible; errno says why. It does not throw, because failing
/// to tell someone is no reason to end.
[[nodiscard]] bool say(std::FILE* stream, std::string_view text);

/// An output file that is written completely or not at all: a regular file is written beside its name and renamed at
/// the end. Anything else with that name (a device, a pipe) is written directly and never removed. Every member throws
/// std::runtime_error, which names the file and the cause.
class OutputFile {
 public:
  OutputFile(std::string what, const std::string& path);  ///< `what`: for messages, such as "picture".
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  [[nodiscard]] std::FILE* stream() { return stream_; }
  void finish();
  [[noreturn]] void fail(const std::string& cause) const;

 private:
  std::string what_;
  std::string path_;       ///< As the user wrote it.
  std::string target_;     ///< After following links.
  std::string temporary_;  ///< Empty: the target is written directly.
  std::FILE* stream_ = nullptr;
};

/// Speeds computed from a run.
struct Speed {
  double mflops = 0;
  double bytes_per_second = 0;
  Speed(const Job& job, const Outcome& outcome);
};

[[nodiscard]] std::string text_report(const Job& job, const Outcome& outcome);

/// One line, without the line's end.
[[nodiscard]] std::string json_report(const Job& job, const Outcome& outcome);

/// Writes "iteration,residual" and a line per iteration. Throws std::runtime_error, which names the file and the cause.
void write_history(const std::string& path, const Outcome& outcome);

[[nodiscard]] Caption caption_of(const Job& job, const Outcome& outcome);

class Progress {
 public:
  /// If `on` is false, it does nothing.
  Progress(bool on, double tolerance) : on_(on), tolerance_(tolerance) {}

  /// Cheap: it reads the clock once in 32 iterations and draws at most ten times a second. `residual` is relative.
  void show(int iteration, double residual);

  /// Removes the bar.
  void clear();

  /// Whether stderr is a terminal that can show a bar.
  [[nodiscard]] static bool possible();

 private:
  void draw(int iteration, double residual);

  bool on_;
  bool drawn_ = false;
  double tolerance_;
  double next_ = 0;
};

}  // namespace scg
