// SPDX-License-Identifier: MIT
#include "launch/coordinator/ways.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace aplib::launch::coordinator {
namespace {

using Kind = comm::Way::Kind;

bool reaches(const wire::Probed& from, std::uint32_t to) {
  return std::ranges::find(from.reached, to) != from.reached.end();
}

/// The first relay that answers both, gateways before the launcher's own.
std::optional<std::size_t> common_relay(const wire::Probed& a, const wire::Probed& b, std::size_t relays) {
  for (std::size_t i = 1; i <= relays; ++i) {
    const std::size_t relay = i % relays;
    if (!a.relays[relay].empty() && !b.relays[relay].empty()) return relay;
  }
  return std::nullopt;
}

std::optional<std::size_t> own_relay(const wire::Probed& of) {
  for (std::size_t i = 1; i <= of.relays.size(); ++i) {
    const std::size_t relay = i % of.relays.size();
    if (!of.relays[relay].empty()) return relay;
  }
  return std::nullopt;
}

}  // namespace

Ways choose_ways(const std::vector<wire::Probed>& found, const std::vector<std::string>& relays,
                 const std::function<bool(std::uint32_t, std::uint32_t)>& is_apart, ForcedWay forced) {
  Ways ways;
  ways.of.resize(found.size());
  const auto add = [&ways](std::uint32_t a, std::uint32_t b, const wire::PlannedWay& of_a,
                           const wire::PlannedWay& of_b) {
    ways.of[a].push_back(of_a);
    ways.of[b].push_back(of_b);
  };
  for (std::uint32_t a = 0; a < found.size(); ++a) {
    for (std::uint32_t b = a + 1; b < found.size(); ++b) {
      if (!is_apart(a, b)) continue;
      const bool there = forced != ForcedWay::relay && reaches(found[a], b);
      const bool back = forced != ForcedWay::relay && reaches(found[b], a);
      if (there && back && forced == ForcedWay::none) continue;
      if (there || back) {
        add(a, b, {b, there ? Kind::calls : Kind::called, {}, {}}, {a, there ? Kind::called : Kind::calls, {}, {}});
        continue;
      }
      const auto common = relays.empty() ? std::nullopt : common_relay(found[a], found[b], relays.size());
      const auto of_a = common ? common : own_relay(found[a]);
      const auto of_b = common ? common : own_relay(found[b]);
      if (!of_a || !of_b) {
        if (!ways.lost) ways.lost.emplace(a, b);
        continue;
      }
      const std::string name = common ? relays[*common] : relays[*of_a] + ", " + relays[*of_b];
      add(a, b, {b, Kind::relay, found[a].relays[*of_a], name}, {a, Kind::relay, found[b].relays[*of_b], name});
      if (!common) ways.chains.push_back({*of_a, *of_b, a, b});
    }
  }
  return ways;
}

bool are_near(const std::string& address, const std::string& other) {
  constexpr std::size_t bytes_of_4 = 2;
  constexpr std::size_t bytes_of_6 = 6;
  std::array<std::array<unsigned char, sizeof(in6_addr)>, 2> both{};
  for (const auto& [family, bytes] : {std::pair{AF_INET, bytes_of_4}, std::pair{AF_INET6, bytes_of_6}}) {
    // "fe80::1%eth0" has no place in the internet: it is near.
    const bool first = ::inet_pton(family, address.substr(0, address.find('%')).c_str(), both[0].data()) == 1;
    const bool second = ::inet_pton(family, other.substr(0, other.find('%')).c_str(), both[1].data()) == 1;
    if (first && second) return std::memcmp(both[0].data(), both[1].data(), bytes) == 0;
  }
  return false;
}

}  // namespace aplib::launch::coordinator
