// SPDX-License-Identifier: MIT
// Child: a process of ours with pipes to its standard input and from its standard output and error. It has a session
// of its own, so that it and what it starts end together. Guard: a small process that ends the children of a launcher
// that was killed and cannot do it.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"

namespace aplib::launch::start {

/// Not thread safe. System calls, but none that waits for the program.
class Child {
 public:
  enum Stream { output, error };

  /// Starts argv[0], looked for in PATH, in `folder` (empty: ours). It dies with the calling thread. Throws
  /// Error(failed) with the system's reason when it cannot be executed.
  Child(const std::vector<std::string>& argv, const std::string& folder);
  /// Kills, and waits until it has gone.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Readable when the process has ended; -1 where the system lacks that (then ask ended() now and then).
  [[nodiscard]] int end_fd() const noexcept { return end_.get(); }
  /// Readable when read() has something. -1: it has ended.
  [[nodiscard]] int output_fd(Stream stream) const noexcept { return outputs_[stream].get(); }
  /// -1: closed.
  [[nodiscard]] int input_fd() const noexcept { return input_.get(); }

  /// Writes as much of `text` as the pipe takes and removes it from there; false when the pipe has no reader any more.
  bool write(std::string& text);
  void close_input() noexcept;
  /// What has come; "" when nothing more is there now, or ever.
  [[nodiscard]] std::string read(Stream stream);

  /// To the process and all of its session that have not left its group.
  void signal(int number) const noexcept;
  /// Exit status, or 128 + signal, when it has ended; what it left behind in its group is killed then. Does not wait.
  [[nodiscard]] std::optional<int> ended();

 private:
  pid_t pid_ = -1;
  os::UniqueFd end_;
  std::array<os::UniqueFd, 2> outputs_;  // by Stream
  os::UniqueFd input_;
  std::optional<int> status_;
};

/// While it lives, a process "aprun-guard" waits at a pipe from us. When that closes without a word, it sends
/// SIGTERM to the groups that it watches and, to those that are still there a second later, SIGKILL. Not thread
/// safe.
class Guard {
 public:
  /// Forks. Where that fails there is no guard, and children end by themselves when their standard input does.
  Guard();
  /// Ends the guard; what it still watches is left alone.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  void watch(pid_t group) noexcept;
  void forget(pid_t group) noexcept;

 private:
  void tell(pid_t word) noexcept;

  pid_t pid_ = -1;
  os::UniqueFd pipe_;
};

}  // namespace aplib::launch::start
