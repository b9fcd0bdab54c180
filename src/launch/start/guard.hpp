// SPDX-License-Identifier: MIT
// Guard: a small process that ends the children of a launcher which was killed and could not do it.
#pragma once

#include <sys/types.h>

namespace aplib::launch {

/// While it lives, a process "aprun-guard" waits at a pipe from us. When that closes without leave(), it sends SIGTERM to the groups that it watches and, to those that are still there a second
/// later, SIGKILL. Not thread safe.
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
  int pipe_ = -1;
};

}  // namespace aplib::launch
