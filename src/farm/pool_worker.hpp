// SPDX-License-Identifier: MIT
// PoolWorker: a farm's worker on a host of a pool, from both sides. The farm runs its own program file there by `apctl
// exec`, whose standard streams are the channel. There, main() runs until it makes its farm, which serves instead.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace aplib::farm {

/// What runs on the hosts: this program with its arguments.
struct PoolProgram {
  std::string pool;
  std::vector<std::string> command;  ///< This process's.
  /// Throws Error(failed).
  static PoolProgram of_this_process(const std::string& pool);
  /// In a process of its own: runs a worker, on the next host with each number, that speaks by this socket.
  [[noreturn]] void run(unsigned number, int channel) const;
};

/// Cores of all hosts of a pool. Throws Error(failed), Error(bad_argument).
[[nodiscard]] unsigned cores_of_pool(const std::string& pool);

/// Where a worker reads and writes.
struct WorkerStreams {
  int in = -1;
  int out = -1;
};
/// Nothing: this process is no worker of a farm elsewhere.
[[nodiscard]] std::optional<WorkerStreams> streams_of_worker() noexcept;

}  // namespace aplib::farm
