// SPDX-License-Identifier: MIT
// JobProcess: a command as a process with a process group of its own. Its output goes to files without a name, which
// the kernel keeps in memory while there is room for them.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "farm/apfarm/command_template.hpp"

namespace aplib::farm {

/// A process that sleeps until this one is gone, killed or not, and then kills the process groups that it is shown: an
/// apfarm that was killed leaves nothing behind.
class GroupGuard {
 public:
  /// With room for so many groups. Forks. Throws Error(exhausted).
  explicit GroupGuard(std::size_t count);
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  /// Where the group of the process in this slot stands. 0: none. To show it takes no system call.
  [[nodiscard]] std::atomic<pid_t>& group(std::size_t slot) noexcept { return groups_[slot]; }

 private:
  std::size_t count_;
  std::atomic<pid_t>* groups_;  // shared with the guard, which reads when nobody writes any more
  os::UniqueFd alive_;          // closed by the kernel, at the latest
};

/// The standard output and error of a job.
using JobFiles = std::array<os::UniqueFd, 2>;

/// A file without a name. Its pages stay in memory until the system needs them for others. Throws Error(exhausted).
[[nodiscard]] os::UniqueFd make_job_file();
/// Why the file system takes no more of this file (errno); 0: it does. It keeps the room that it is asked about.
[[nodiscard]] int why_full(int file) noexcept;
/// What to say then.
[[nodiscard]] std::string full_text(int problem);

/// Where the program that apfarm runs finds its streams.
struct JobStreams {
  int input = -1;
  int nice = 0;                         ///< As of nice(1).
  JobFiles files{};                     ///< None: it writes where apfarm does.
  std::atomic<pid_t>* group = nullptr;  ///< The guard's; the process writes it before anything else.
};

class JobProcess {
 public:
  enum Stream { output, error };

  /// Starts it, by a shell where that is needed. `environment`: of execve(2). Throws Error(failed) with the system's
  /// reason, Error(exhausted) when there is no room for a process now.
  JobProcess(const Command& command, const std::string& shell, const std::vector<char*>& environment,
             JobStreams streams);

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// By Stream; -1 where nothing is captured.
  [[nodiscard]] std::array<int, 2> files() const noexcept { return {files_[output].get(), files_[error].get()}; }
  /// What it has written; none where nothing was captured.
  [[nodiscard]] JobFiles take_files() noexcept { return std::move(files_); }
  /// Its files, when it has written nothing and nobody of its group is left who could; else none. REQUIRES: it has
  /// ended.
  [[nodiscard]] JobFiles unused_files() noexcept;
  /// Signals its whole group. REQUIRES: it has not been waited for.
  void signal(int number) const noexcept;

 private:
  JobFiles files_;  // by Stream
  pid_t pid_ = -1;
};

}  // namespace aplib::farm
