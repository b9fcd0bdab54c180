// SPDX-License-Identifier: MIT
#include "launch/node/routes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/mixed/mixed_module.hpp"
#include "launch/report.hpp"

namespace aplib::launch::node {

std::vector<wire::Route> routes_of(const comm::Module& module, std::uint32_t self, std::uint32_t processes) {
  std::vector<wire::Route> routes;
  std::vector<std::pair<std::string, std::vector<std::uint32_t>>> groups;
  for (std::uint32_t peer = 0; peer < processes; ++peer) {
    if (peer == self) continue;
    const std::string name = comm::mixed::in_charge_of(module, peer).name();
    if (processes <= described_processes_max) {
      routes.push_back({name, fmt::format("{}", peer), module.describe(peer)});
      continue;
    }
    auto group = std::ranges::find(groups, name, &std::pair<std::string, std::vector<std::uint32_t>>::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
    group->second.push_back(peer);
  }
  for (const auto& [name, peers] : groups) routes.push_back({name, ranges(peers), {}});
  return routes;
}

}  // namespace aplib::launch::node
