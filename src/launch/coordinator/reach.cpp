// SPDX-License-Identifier: MIT
// Addresses of the launcher and of nodes.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "aplib/error.hpp"
#include "comm/tcp/address.hpp"
#include "launch/coordinator/coordinator_impl.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch::coordinator {
namespace {

constexpr const char* loopback = "127.0.0.1";

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// The name of a host for the system's resolver: without a user.
std::string plain_name(const std::string& name) { return name.substr(name.rfind('@') + 1); }

/// This host's address on the route to that host. Nothing if the name is unknown here, or if there is no route.
std::optional<std::string> local_address_to(const cluster::ClusterHost& host) {
  return wire::local_address_towards(wire::look_up(plain_name(host.address.empty() ? host.name : host.address)));
}

void add(std::vector<std::string>& addresses, const std::string& address) {
  if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
}

}  // namespace

Reach find_reach(const std::vector<cluster::ClusterHost>& hosts) {
  Reach reach;
  reach.first.resize(hosts.size());
  bool any = false;
  bool some_unknown = false;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (cluster::speaks_by_streams(hosts[i].launch)) continue;
    any = true;
    const std::optional<std::string> towards = local_address_to(hosts[i]);
    some_unknown = some_unknown || !towards;
    if (towards && !is_loopback(*towards)) add(reach.addresses, *towards);
    reach.first[i] = towards.value_or(std::string());
  }
  if (!any) return reach;
  // A host whose name is unknown here may come from anywhere. One on this computer reaches all addresses.
  if (some_unknown) {
    for (const comm::tcp::HostAddress& own : comm::tcp::host_addresses())
      if (own.usable && !is_loopback(own.address)) add(reach.addresses, own.address);
  }
  if (reach.addresses.empty()) reach.addresses.emplace_back(loopback);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (!cluster::speaks_by_streams(hosts[i].launch) &&
        std::ranges::find(reach.addresses, reach.first[i]) == reach.addresses.end())
      reach.first[i] = reach.addresses.front();
  }
  return reach;
}

// ---- of the nodes, for messages ----

/// Where the host gets messages: at the address that the cluster file gives, or else at the one by which ssh reached
/// the host, or the host the launcher. Empty: the node finds it out.
std::string Coordinator::Impl::data_address(std::uint32_t process) const {
  const cluster::ClusterHost& host = job.cluster.hosts[process];
  if (wire::is_numeric_address(host.address)) return host.address;
  const std::string& said = nodes[process]->hello.local;
  // A keeper that ssh has not started does not know by which address it is reached.
  const std::string& local = said.empty() ? host.reached : said;
  if (!cluster::speaks_by_streams(host.launch)) return local;
  // Behind a tunnel, or on this computer, ssh arrives at loopback. A local node inherits what was said of the launcher.
  const bool by_ssh =
      host.launch == cluster::LaunchKind::ssh || (host.launch == cluster::LaunchKind::keeper && !host.is_here);
  const bool leads_there = by_ssh && wire::is_numeric_address(local);
  return leads_there && !is_loopback(local) ? local : std::string();
}

/// For nodes that have to find out their address: others lead to it. A few are enough. Throws Error(failed).
std::vector<std::string> Coordinator::Impl::known_addresses() const {
  constexpr std::size_t enough = 8;
  std::vector<std::string> known;
  for (std::uint32_t process = 0; process < nodes.size() && known.size() < enough; ++process) {
    if (const std::string address = data_address(process); !address.empty()) add(known, address);
  }
  for (const std::string& address : job.reach.addresses) add(known, address);
  if (!known.empty()) return known;
  const std::string& here = nodes.front()->hello.host_id;
  if (!std::ranges::all_of(nodes, [&here](const auto& node) { return node->hello.host_id == here; })) {
    throw Error(Errc::failed,
                "the addresses by which the hosts reach each other are not known, for ssh came to them by loopback, as "
                "through a tunnel: say them by address = \"...\" in [[host]]; nothing was started");
  }
  return {loopback};
}

const char* Coordinator::Impl::address_why(std::uint32_t process, const std::string& address) const {
  const cluster::ClusterHost& host = job.cluster.hosts[process];
  if (address.empty()) return "it looks for one when it starts";
  if (address == host.address) return "the cluster file";
  if (is_loopback(address)) return "all processes are on this computer";
  if (!cluster::speaks_by_streams(host.launch)) return "by which it reached aprun";
  return address == data_address(process) ? "by which ssh reached it" : "from which it reaches the others";
}

}  // namespace aplib::launch::coordinator
