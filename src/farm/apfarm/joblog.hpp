// SPDX-License-Identifier: MIT
// Joblog: GNU Parallel's list of jobs that have ended, one line each. It is also the journal: what an apfarm that was
// killed has done, the next one need not do.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"

namespace aplib::farm {

/// How a job has ended.
struct JobRecord {
  std::uint64_t sequence = 0;
  std::string host = ":";  ///< This computer.
  double start = 0;        ///< Seconds since 1970.
  double runtime = 0;      ///< Seconds.
  std::uint64_t sent = 0;
  std::uint64_t received = 0;  ///< Bytes of its standard output.
  int exit_value = 0;          ///< -1: it took too long.
  int signal = 0;
  std::string command{};

  [[nodiscard]] bool good() const noexcept { return exit_value == 0 && signal == 0; }
};

class Joblog {
 public:
  /// Opens the file, or makes it. With `resume`, or as "+FILE", what it has is kept; a last line that is not whole is
  /// removed. Unless it `writes`, it only looks for what is to be resumed, and nothing may be added.
  /// Throws Error(failed), or Error(bad_option) when the file is no joblog.
  Joblog(const std::string& file, bool resume, bool writes);

  /// The last line of each job that the file had.
  [[nodiscard]] const std::map<std::uint64_t, JobRecord>& past() const noexcept { return past_; }
  /// A line to be written.
  void add(const JobRecord& record);
  /// Appends what was added, in one write. Throws Error(failed).
  void flush();

 private:
  void read_past(const std::string& text);

  std::string file_;
  os::UniqueFd descriptor_;
  std::map<std::uint64_t, JobRecord> past_;
  std::string lines_;
};

}  // namespace aplib::farm
