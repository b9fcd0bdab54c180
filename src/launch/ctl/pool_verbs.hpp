// SPDX-License-Identifier: MIT
// The verbs of apctl for pools: hosts that stand ready. docs/pool.md says what they do.
#pragma once

#include <string>

namespace aplib::launch::ctl {

/// Makes a pool of the hosts of a cluster file, or repairs one that stands. `name` may be empty: the file's. `file` may
/// be empty: the pool stands. Returns an exit status. Throws Error.
[[nodiscard]] int pool_up(const std::string& file, std::string name);
/// Ends its keepers, with what they have started, and the ways to them. Returns an exit status. Throws Error.
[[nodiscard]] int pool_down(const std::string& name);
/// Prints what the hosts of a pool are, of all pools without a name. `speed`: measures that, too. Returns an exit
/// status, 1 if a host is lost. Throws Error.
[[nodiscard]] int pool_hosts(const std::string& name, bool json, bool speed);

}  // namespace aplib::launch::ctl
