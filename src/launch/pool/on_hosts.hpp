// SPDX-License-Identifier: MIT
// Work on hosts of a pool beside machines: apkeeper runs there with other words, and something here speaks with it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/pool.hpp"

namespace aplib::launch::pool {

/// Null: there are none.
using LaneMaker = std::function<std::unique_ptr<LaneSource>()>;

struct HostWork {
  /// What apkeeper is told, by the number of the host in the pool.
  std::function<std::vector<std::string>(std::size_t host)> words;
  /// Speaks with it by its standard streams, and by lanes where it takes them, on a thread of its own. Returns what
  /// went wrong.
  std::function<std::vector<std::string>(std::size_t host, const os::Ends& ends, const LaneMaker& lanes)> here;
  bool takes_lanes = false;
  /// In which it runs; empty: the host's, as the cluster file says. Nothing: what is relative begins at the user's own.
  std::optional<std::string> folder{};
  /// What went wrong; one call at a time. Empty: the user is told.
  std::function<void(const std::string& text)> complain{};
  /// It has ended, or was never started. May be empty.
  std::function<void(std::size_t host)> over{};
  /// All streams break off.
  std::stop_token stop{};
};

/// Runs apkeeper on these hosts of the pool, all at once, and waits. True: all went well. Throws Error.
[[nodiscard]] bool run_on_hosts(const Pool& pool, std::span<const std::size_t> hosts, const HostWork& work);

}  // namespace aplib::launch::pool
