// SPDX-License-Identifier: MIT
// The addresses by which hosts reach the launcher.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/cluster.hpp"

namespace aplib::launch::coordinator {

struct Reach {
  /// Addresses to listen on, each once. Only loopback if every host is this computer.
  std::vector<std::string> addresses{};
  /// By host: the address that it tries first.
  std::vector<std::string> first{};
  /// By host: the reason for that address, for people.
  std::vector<std::string> reasons{};
};

/// Looks up names, but sends nothing to the hosts. Throws Error(failed) if this computer has no address that another
/// could reach.
[[nodiscard]] Reach find_reach(const std::vector<cluster::ClusterHost>& hosts);

}  // namespace aplib::launch::coordinator
