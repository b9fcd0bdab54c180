// SPDX-License-Identifier: MIT
// The addresses by which hosts that call back reach the launcher.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/cluster.hpp"

namespace aplib::launch::coordinator {

struct Reach {
  /// Addresses to listen on, each once. None if no host calls back; only loopback if all that do are this computer.
  std::vector<std::string> addresses{};
  /// By host: the address that it tries first. Empty: it does not call back.
  std::vector<std::string> first{};
};

/// Looks up names, but sends nothing to the hosts. Throws Error(failed) if this computer has no address that another
/// could reach.
[[nodiscard]] Reach find_reach(const std::vector<cluster::ClusterHost>& hosts);

}  // namespace aplib::launch::coordinator
