// SPDX-License-Identifier: MIT
// Started: what runs for a node, as the launcher sees it: a child process here, or what a keeper runs on another host.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/os/descriptor.hpp"

namespace aplib::launch::start {

/// Not thread safe. No call waits for the program.
class Started {
 public:
  enum Stream { output, error };

  Started() = default;
  /// Ends it by force.
  virtual ~Started() = default;
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  /// Its process group on this computer; -1: it has none here.
  [[nodiscard]] virtual pid_t pid() const noexcept = 0;
  /// Readable when it has ended. -1 where the system lacks that; then call ended() now and then.
  [[nodiscard]] virtual int end_fd() const noexcept = 0;
  /// Readable when read() has something. -1: the stream has ended.
  [[nodiscard]] virtual int output_fd(Stream stream) const noexcept = 0;
  /// -1: closed.
  [[nodiscard]] virtual int input_fd() const noexcept = 0;

  /// Its standard output and input, from now on the caller's.
  [[nodiscard]] virtual os::Ends release_streams() noexcept = 0;
  /// Writes as much of `text` as is taken now, and removes that part. False: nobody reads it any more.
  virtual bool write(std::string& text) = 0;
  virtual void close_input() noexcept = 0;
  /// What has arrived. "": nothing more is there now, or ever.
  [[nodiscard]] virtual std::string read(Stream stream) = 0;

  /// Asks it, or forces it, to end, together with what it has started.
  virtual void signal(int number) const noexcept = 0;
  /// If it has ended: its exit status, or 128 + signal. Then what it left in its group is killed. Does not wait.
  [[nodiscard]] virtual std::optional<int> ended() = 0;
};

/// What the pipe or socket takes of `text` now is written and removed. False: nobody reads it any more. SIGPIPE is
/// blocked.
bool write_some(int descriptor, std::string& text);
/// What has come by a pipe or socket that does not block. Resets `descriptor` at its end.
[[nodiscard]] std::string read_some(os::UniqueFd& descriptor);

}  // namespace aplib::launch::start
