// SPDX-License-Identifier: MIT
// Work on hosts of a pool beside machines: apkeeper runs there with other words, and something here speaks with it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/pool.hpp"

namespace aplib::launch::ctl {

struct HostWork {
  /// What apkeeper is told, by the number of the host in the pool.
  std::function<std::vector<std::string>(std::size_t host)> words;
  /// Speaks with it by its standard streams, and by lanes where it takes them, on a thread of its own. Returns what
  /// went wrong.
  std::function<std::vector<std::string>(std::size_t host, const os::Ends& ends, pool::LaneSource* lanes)> here;
  bool takes_lanes = false;
};

/// Runs apkeeper on these hosts of the pool, all at once, and waits. Tells the user what went wrong. True: all went
/// well. Throws Error.
[[nodiscard]] bool run_on_hosts(const pool::Pool& pool, std::span<const std::size_t> hosts, const HostWork& work);

}  // namespace aplib::launch::ctl
