// SPDX-License-Identifier: MIT
// Child: a child process with pipes to its standard input and from its standard output and error. It is the root of a
// process tree, so that it ends together with what it starts: all but daemons, which begin a session of their own.
// Guard: a small process that ends the children of a process that was killed.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/start/started.hpp"

namespace aplib::launch::start {

class Guard;

/// A process tree: a root that this process has forked, what is in the root's process group, and what has the root's
/// number in its environment (AP_TREE). All are of the session of this process. A session for each would be simpler to
/// find, but Linux shares the cores among sessions first (autogroup, sched(7)), so a process that yields, or wakes
/// another, would leave its core to none of another session: ranks that wait for each other would wait for its clock.
class TreeRoot {
 public:
  /// Before fork(). The environment must not change until exec.
  TreeRoot();
  /// In the child: begins a process group that has no terminal. Async-signal-safe.
  void become() noexcept;
  /// For exec. Valid as long as the object.
  [[nodiscard]] char* const* environment() noexcept { return environment_.data(); }

 private:
  std::string mark_;
  std::vector<char*> environment_;
};
/// To all processes of a tree. The root has not been waited for. Async-signal-safe.
void signal_tree(pid_t root, int number) noexcept;

/// Not thread safe. Makes system calls, but none that waits for the program.
class Child final : public Started {
 public:
  struct Command {
    std::vector<std::string> argv;
    std::string file{};        ///< Empty: argv[0]. A name without a slash is looked for in PATH.
    std::string folder{};      ///< Empty: the current one.
    int input = -1;            ///< Descriptor of its standard input, instead of the pipe.
    bool leaves_some = false;  ///< What it has started in its tree may outlive it, unless it is killed.
    Guard* guard = nullptr;    ///< Watches it from before it executes anything; the caller has it forget the process.
  };
  /// The process dies with the calling thread. Throws Error(failed) with the system's reason when it cannot be
  /// executed.
  explicit Child(const Command& command);
  Child(const std::vector<std::string>& argv, const std::string& folder, Guard* guard = nullptr)
      : Child(Command{.argv = argv, .folder = folder, .guard = guard}) {}
  /// Kills the process, and waits until it has ended.
  ~Child() override;

  [[nodiscard]] pid_t pid() const noexcept override { return pid_; }
  [[nodiscard]] int end_fd() const noexcept override { return end_.get(); }
  [[nodiscard]] int output_fd(Stream stream) const noexcept override { return outputs_[stream].get(); }
  [[nodiscard]] int input_fd() const noexcept override { return input_.get(); }
  [[nodiscard]] os::Ends release_streams() noexcept override {
    return {std::move(outputs_[output]), std::move(input_)};
  }
  bool write(std::string& text) override { return !input_ || write_some(input_.get(), text); }
  void close_input() noexcept override { input_.reset(); }
  [[nodiscard]] std::string read(Stream stream) override { return read_some(outputs_[stream]); }
  /// To all processes of its tree.
  void signal(int number) const noexcept override;
  [[nodiscard]] std::optional<int> ended() override;
  /// It has ended by a signal, rather than with a status that looks so.
  [[nodiscard]] bool was_killed() const noexcept { return was_killed_; }

 private:
  pid_t pid_ = -1;
  os::UniqueFd end_;
  std::array<os::UniqueFd, 2> outputs_;  // by Stream
  os::UniqueFd input_;
  std::optional<int> status_;
  bool leaves_some_ = false;
  bool was_killed_ = false;
};

/// What a command has said, and how it has ended.
struct CommandEnd {
  std::optional<int> status{};  ///< As Child::ended(). Nothing: it did not end in time, and was killed.
  std::string output{};
  std::string error{};

  [[nodiscard]] bool is_well() const noexcept { return status == 0; }
  /// All its words in one line; else how `name` has ended.
  [[nodiscard]] std::string words(std::string_view name) const;
};
/// Runs a command without input. Throws Error if it cannot be executed.
[[nodiscard]] CommandEnd run_command(const std::vector<std::string>& argv, std::chrono::milliseconds patience);

/// While it lives, a process "aprun-guard" waits at a pipe from its maker. When that closes, it sends SIGTERM to the
/// trees that it watches, and SIGKILL to those that still exist a second later. Not thread safe.
class Guard {
 public:
  /// Forks. If that fails there is no guard, and children end by themselves when their standard input does.
  Guard();
  /// Ends the guard, but not what it still watches.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// Async-signal-safe. A child of the launcher's may call it, too.
  void watch(pid_t root) noexcept;
  void forget(pid_t root) noexcept;

 private:
  void tell(pid_t word) noexcept;

  pid_t pid_ = -1;
  os::UniqueFd pipe_;
};

}  // namespace aplib::launch::start
