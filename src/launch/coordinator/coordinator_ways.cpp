// SPDX-License-Identifier: MIT
// Ways between the nodes. Where all hosts are of one room, nobody is tried, and the start has no round trip more.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aplib/error.hpp"
#include "launch/coordinator/coordinator_impl.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch::coordinator {

void Coordinator::Impl::start_relays() {
  if (job.dry_run || (job.cluster.sites.empty() && forced_way != ForcedWay::relay)) return;
  Relays::Events events;
  events.ready = [this] { advance(); };
  events.lost = [this](const std::string& why) { relay_lost(why); };
  events.started_anew = [this](const std::string& why) {
    if (phase < Phase::ending) actions.say(fmt::format("{}; it is started anew", why));
  };
  relays.emplace(loop, job.cluster, job.aprun, machine_id, key, std::move(events));
}

/// Whether it is not known that two processes reach each other.
bool Coordinator::Impl::are_apart(std::uint32_t a, std::uint32_t b) const {
  const KnownNode& one = *nodes[a];
  const KnownNode& other = *nodes[b];
  if (forced_way != ForcedWay::none) return true;
  const std::uint32_t site = job.cluster.hosts[a].site;
  if (site != job.cluster.hosts[b].site) return true;
  if (site != 0) return false;
  const auto first = wire::parse_endpoint(wire::address_of(one.endpoint));
  const auto second = wire::parse_endpoint(wire::address_of(other.endpoint));
  return first && second && !are_near(first->host, second->host);
}

bool Coordinator::Impl::any_apart() const {
  // Where no site is named, the first process stands for all: being near is transitive.
  for (std::uint32_t process = 1; process < nodes.size(); ++process)
    if (are_apart(0, process)) return true;
  return false;
}

/// Has all nodes look for ways. False: relays do not stand yet.
bool Coordinator::Impl::probe_all() {
  if (relays && !relays->ready()) return false;
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    wire::Probe probe;
    probe.machine = machine_id;
    if (relays) probe.relays = relays->places();
    for (std::uint32_t peer = 0; peer < nodes.size(); ++peer) {
      const std::string address = wire::address_of(nodes[peer]->endpoint);
      if (peer != process && !address.empty() && are_apart(process, peer)) probe.peers.push_back({peer, address});
    }
    nodes[process]->stage = Stage::probing;
    tell(process, probe);
  }
  return true;
}

/// Throws Error(failed) where the cluster file names sites, and there is no way between two processes. Without sites
/// the processes find out themselves, should they ever talk.
Ways Coordinator::Impl::find_ways() {
  std::vector<wire::Probed> found;
  for (const auto& node : nodes) found.push_back(std::move(node->found));
  Ways ways = choose_ways(
      found, relays ? relays->names() : std::vector<std::string>(),
      [this](std::uint32_t a, std::uint32_t b) { return are_apart(a, b); }, forced_way);
  if (!ways.lost || !relays) return ways;
  const auto [a, b] = *ways.lost;
  const auto where = [this](std::uint32_t process) {
    return fmt::format("{} ({})", nodes[process]->name, wire::address_of(nodes[process]->endpoint));
  };
  throw Error(
      Errc::failed,
      fmt::format("{} and {} have no way to each other: neither reaches the other, and not both reach a relay; is "
                  "each of them in the hosts of a [[site]], and does a firewall keep it from its gateway? Nothing "
                  "was started",
                  where(a), where(b)));
}

/// The pairs whose way it was cannot go on.
void Coordinator::Impl::relay_lost(const std::string& why) {
  if (phase >= Phase::ending || all_ended) return;
  if (phase < Phase::running) return call_off(fmt::format("{}; nothing was started", why));
  stop_running(static_cast<int>(ExitStatus::peer_lost), fmt::format("{}; the machine stops", why));
}

}  // namespace aplib::launch::coordinator
