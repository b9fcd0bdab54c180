// SPDX-License-Identifier: MIT
// By which addresses hosts reach the launcher.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/cluster.hpp"

namespace aplib::launch::coordinator {

struct Reach {
  /// To listen on, each once. Loopback alone when every host is this computer.
  std::vector<std::string> addresses{};
  /// By host: the address that it shall try first.
  std::vector<std::string> first{};
  /// By host: why it is that, for people.
  std::vector<std::string> reasons{};
};

/// Looks up names; sends nothing to the hosts. Throws Error(failed) when this computer has no address that another
/// could reach.
[[nodiscard]] Reach find_reach(const std::vector<cluster::ClusterHost>& hosts);

}  // namespace aplib::launch::coordinator
