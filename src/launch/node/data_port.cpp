// SPDX-License-Identifier: MIT
#include "launch/node/data_port.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "aplib/error.hpp"
#include "base/cell_map.hpp"
#include "base/os/time.hpp"
#include "comm/greeting.hpp"
#include "comm/mixed/mixed_module.hpp"
#include "launch/this_host.hpp"

namespace aplib::launch::node {

DataPort::DataPort(const Options& options, const std::string& address, const comm::JobKey& key) : key_(key) {
  const std::vector<std::string> names = comm::mixed::wished_modules(options.module);
  if (names.empty()) found_ = comm::find_modules(options.module_path);
  // Modules that are not named are not opened, because some need libraries that take long to load.
  for (const std::string& name : names) {
    std::vector<comm::FoundModule> found = comm::find_modules(options.module_path, name);
    if (comm::kind_of(found, name) == nullptr) throw Error(Errc::bad_option, comm::unknown_module(found, name));
    std::ranges::move(found, std::back_inserter(found_));
  }
  std::vector<const comm::ModuleKind*> kinds;
  for (const comm::FoundModule& each : found_)
    if (each.kind != nullptr && comm::kind_of(found_, each.kind->name()) == each.kind.get())
      kinds.push_back(each.kind.get());
  const comm::PortSettings settings{
      .address = address,
      .ports = options.ports,
      .host = shared_memory_domain(),
      .key = key,
      .secure = comm::secure_from(options.secure),
      .streams = options.streams,
      .provider = options.provider,
      .peer_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.peer_timeout),
      .resume_time = std::chrono::duration_cast<std::chrono::milliseconds>(options.resume_time)};
  port_ = std::make_unique<comm::mixed::MixedPort>(kinds, options.module, settings);
}

wire::Prepared DataPort::offer() const {
  wire::Prepared prepared;
  prepared.endpoint = port_->endpoint();
  for (const auto& left : port_->left_out()) prepared.left_out.push_back({left.module, left.why});
  return prepared;
}

wire::Probed DataPort::probe(const wire::Probe& what, std::uint32_t self) {
  prober_ = std::make_unique<Prober>(port_->listening(), key_, self, what);
  return prober_->result();
}

std::unique_ptr<comm::Module> DataPort::make_module(const wire::Plan& plan, std::uint32_t self) {
  prober_.reset();
  std::vector<comm::Way> ways(plan.ways.empty() ? 0 : plan.endpoints.size());
  for (const wire::PlannedWay& way : plan.ways) {
    if (way.process < ways.size()) ways[way.process] = {way.kind, way.place, way.relay};
  }
  return port_->join({.machine = plan.machine,
                      .self = self,
                      .endpoints = plan.endpoints,
                      .names = plan.names,
                      .ways = std::move(ways)});
}

namespace {

/// " reverse", " by relay login1"; empty: directly.
std::string way_text(std::span<const wire::PlannedWay> ways, std::uint32_t peer) {
  const auto way = std::ranges::find(ways, peer, &wire::PlannedWay::process);
  if (way == ways.end() || way->kind == comm::Way::Kind::direct) return {};
  return way->kind == comm::Way::Kind::relay ? " by relay " + way->relay : " reverse";
}

}  // namespace

std::vector<wire::Route> routes_of(const comm::Module& module, std::uint32_t self, std::uint32_t processes,
                                   std::span<const wire::PlannedWay> ways) {
  std::vector<wire::Route> routes;
  std::vector<std::pair<std::string, std::vector<std::uint32_t>>> groups;
  for (std::uint32_t peer = 0; peer < processes; ++peer) {
    if (peer == self) continue;
    std::string name = comm::mixed::in_charge_of(module, peer).name();
    if (processes <= described_processes_max) {
      routes.push_back({name, fmt::format("{}", peer), module.describe(peer)});
      continue;
    }
    name += way_text(ways, peer);
    auto group = std::ranges::find(groups, name, &std::pair<std::string, std::vector<std::uint32_t>>::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
    group->second.push_back(peer);
  }
  for (const auto& [name, peers] : groups) routes.push_back({name, ranges_text(peers), {}});
  return routes;
}

wire::NodeState state_of(const comm::Module& module, std::uint32_t self, std::uint32_t processes,
                         std::span<const wire::PlannedWay> ways) {
  const comm::Traffic traffic = module.traffic();
  return {.module = module.name(),
          .frames_sent = traffic.frames_sent,
          .frames_received = traffic.frames_received,
          .bytes_sent = traffic.bytes_sent,
          .bytes_received = traffic.bytes_received,
          .refused = traffic.refused,
          .cpu_microseconds = os::cpu_microseconds(),
          .routes = routes_of(module, self, processes, ways)};
}

}  // namespace aplib::launch::node
