// SPDX-License-Identifier: MIT
// Nursery: a process with one thread, forked of this one, that forks workers. A program with threads cannot fork at any
// time, but its nursery can.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/os/descriptor.hpp"

namespace aplib::farm {

/// Thread safety: none.
class Nursery {
 public:
  /// What workers do with their end of a channel; they end when it returns. `number`: 0, 1, ...
  using Serve = std::function<void(int channel, unsigned number)>;

  /// Forks. Throws Error(exhausted).
  explicit Nursery(const Serve& serve);
  /// Kills all workers.
  ~Nursery();
  Nursery(const Nursery&) = delete;
  Nursery& operator=(const Nursery&) = delete;

  struct Child {
    pid_t process = -1;
    os::UniqueFd channel{};  ///< A connected stream socket.
  };
  /// Throws Error(exhausted) when there is no process or descriptor, Error(failed) when the nursery is gone.
  Child make();
  /// Kills the worker with its process group, if it still runs. Says how it ended: "killed by signal 11".
  std::string end(pid_t process);

 private:
  os::UniqueFd socket_;
  pid_t pid_ = -1;
};

}  // namespace aplib::farm
