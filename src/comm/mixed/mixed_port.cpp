// SPDX-License-Identifier: MIT
#include "comm/mixed/mixed_port.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aplib/error.hpp"
#include "comm/mixed/mixed_module.hpp"

namespace aplib::comm::mixed {

std::string join_endpoints(const std::vector<NamedEndpoint>& endpoints) {
  std::string list;
  for (const NamedEndpoint& each : endpoints) {
    if (!list.empty()) list += ';';
    list += each.module + '=' + each.endpoint;
  }
  return list;
}

std::vector<NamedEndpoint> split_endpoints(std::string_view list) {
  std::vector<NamedEndpoint> endpoints;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(';'), list.size());
    const std::string_view entry = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const std::size_t equals = entry.find('=');
    if (equals == entry.npos || equals == 0 || equals + 1 == entry.size()) continue;
    endpoints.push_back({std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1))});
  }
  return endpoints;
}

std::string endpoint_of(std::string_view list, std::string_view module) {
  for (NamedEndpoint& each : split_endpoints(list))
    if (each.module == module) return std::move(each.endpoint);
  return {};
}

namespace {

constexpr const char* goes_everywhere = "tcp";

template <class List, class Name>
std::string names_of(const List& list, Name&& name) {
  std::string text;
  for (const auto& each : list) text += fmt::format("{}{}", text.empty() ? "" : ", ", name(each));
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<std::string> wished_modules(std::string_view wish) {
  std::vector<std::string> names;
  while (!wish.empty()) {
    const std::size_t end = std::min(wish.find(','), wish.size());
    if (end != 0) names.emplace_back(wish.substr(0, end));
    wish.remove_prefix(std::min(end + 1, wish.size()));
  }
  if (names == std::vector<std::string>{"auto"}) names.clear();
  return names;
}

MixedPort::MixedPort(const std::vector<const ModuleKind*>& kinds, const std::string& wish,
                     const PortSettings& settings) {
  std::vector<const ModuleKind*> ranked = kinds;
  std::ranges::sort(ranked, [](const ModuleKind* a, const ModuleKind* b) {
    return a->rank() != b->rank() ? a->rank() > b->rank() : a->name() < b->name();
  });
  const std::vector<std::string> names = wished_modules(wish);
  for (const std::string& name : names) {
    if (std::ranges::none_of(ranked, [&](const ModuleKind* kind) { return kind->name() == name; })) {
      throw Error(Errc::bad_option, fmt::format("cannot use module {}: it is not installed here; there are {}", name,
                                                names_of(ranked, [](const ModuleKind* kind) { return kind->name(); })));
    }
  }
  for (const ModuleKind* kind : ranked) {
    const bool named = std::ranges::find(names, kind->name()) != names.end();
    if (named || names.empty()) open(*kind, named, settings);
  }
  if (opened_.empty()) {
    throw Error(Errc::failed, fmt::format("no module can be used: {}", names_of(left_out_, [](const LeftOut& left) {
                                            return fmt::format("{}: {}", left.module, left.why);
                                          })));
  }
}

void MixedPort::open(const ModuleKind& kind, bool named, const PortSettings& settings) {
  std::optional<std::string> why;
  if (!kind.keeps(settings.secure)) {
    why = fmt::format("it cannot keep secure = \"{}\"", to_string(settings.secure));
  } else {
    why = kind.unusable(settings);
  }
  if (why && named) throw Error(Errc::bad_option, fmt::format("cannot use module {}: {}", kind.name(), *why));
  if (!why) {
    try {
      std::unique_ptr<Port> port = kind.open(settings);
      std::string endpoint = port->endpoint();
      opened_.push_back({&kind, std::move(port), std::move(endpoint)});
      return;
    } catch (const Error& error) {
      if (named || kind.name() == goes_everywhere) throw;
      why = error.what();
    }
  }
  left_out_.push_back({kind.name(), *std::move(why)});
}

std::string MixedPort::endpoint() const {
  std::vector<NamedEndpoint> endpoints;
  for (const Opened& each : opened_) endpoints.push_back({each.kind->name(), each.endpoint});
  return join_endpoints(endpoints);
}

int MixedPort::listening() const {
  const auto tcp = std::ranges::find(opened_, goes_everywhere, [](const Opened& each) { return each.kind->name(); });
  return tcp == opened_.end() ? -1 : tcp->port->listening();
}

/// The first of this process's modules that joins it to the peer. Only tcp knows other ways than the direct one.
std::size_t MixedPort::best_for(const JoinSettings& settings, Peer peer) const {
  const std::string& theirs = settings.endpoints[peer];
  const bool is_direct = settings.way(peer).kind == Way::Kind::direct;
  for (std::size_t i = 0; i < opened_.size(); ++i) {
    const std::string endpoint = endpoint_of(theirs, opened_[i].kind->name());
    const bool goes_there = is_direct || opened_[i].kind->name() == goes_everywhere;
    if (goes_there && !endpoint.empty() && opened_[i].kind->joins(opened_[i].endpoint, endpoint)) return i;
  }
  const std::string name = peer < settings.names.size() ? settings.names[peer] : fmt::format("process {}", peer);
  throw Error(
      Errc::failed,
      fmt::format("no module joins it to {}: it has {}, {} has {}{}; use module = \"auto\", or name one more (tcp goes "
                  "everywhere)",
                  name, names_of(opened_, [](const Opened& each) { return each.kind->name(); }), name,
                  names_of(split_endpoints(theirs), [](const NamedEndpoint& each) { return each.module; }),
                  left_out_.empty() ? "" : " (not here: " + names_of(left_out_, [](const LeftOut& left) {
                                             return fmt::format("{}: {}", left.module, left.why);
                                           }) + ")"));
}

std::unique_ptr<Module> MixedPort::join(const JoinSettings& settings) {
  const std::size_t processes = settings.endpoints.size();
  std::vector<std::size_t> best(processes, 0);
  std::vector<bool> used(opened_.size(), false);
  for (Peer peer = 0; peer < processes; ++peer) {
    if (peer != settings.self) used[best[peer] = best_for(settings, peer)] = true;
  }
  if (processes < 2) used.back() = true;  // One process takes the last, which works everywhere.

  std::vector<std::unique_ptr<Module>> modules;
  std::vector<std::uint32_t> number(opened_.size(), 0);
  for (std::size_t i = 0; i < opened_.size(); ++i) {
    if (!used[i]) continue;
    JoinSettings own = settings;
    for (Peer peer = 0; peer < processes; ++peer) {
      const bool known = peer == settings.self || best[peer] == i;
      own.endpoints[peer] = known ? endpoint_of(settings.endpoints[peer], opened_[i].kind->name()) : std::string();
    }
    number[i] = static_cast<std::uint32_t>(modules.size());
    modules.push_back(opened_[i].port->join(own));
  }
  opened_.clear();  // The ports that are left would listen for nobody.
  if (modules.size() == 1) return std::move(modules.front());
  std::vector<std::uint32_t> in_charge(processes, 0);
  for (Peer peer = 0; peer < processes; ++peer) in_charge[peer] = number[best[peer]];
  return std::make_unique<MixedModule>(settings.self, std::move(modules), std::move(in_charge));
}

}  // namespace aplib::comm::mixed
