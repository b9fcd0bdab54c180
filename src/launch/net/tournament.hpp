// SPDX-License-Identifier: MIT
// A round-robin tournament: every host meets each other once, and in a round each meets at most one. Two hosts meet in
// the round to which their numbers add up (the circle method).
#pragma once

#include <cstdint>
#include <optional>

namespace aplib::launch::net {

/// How many rounds there are.
[[nodiscard]] constexpr std::uint32_t rounds_of(std::uint32_t hosts) { return hosts < 2 ? 0 : hosts - 1 + hosts % 2; }

/// Whom `host` meets in that round. Nothing: it has a rest. REQUIRES: round < rounds_of(hosts), host < hosts.
[[nodiscard]] constexpr std::optional<std::uint32_t> partner_of(std::uint32_t hosts, std::uint32_t round,
                                                                std::uint32_t host) {
  const std::uint32_t rounds = rounds_of(hosts);
  const auto other = [&](std::uint32_t one) { return (round + rounds - one) % rounds; };
  if (hosts % 2 == 1) return other(host) == host ? std::nullopt : std::optional(other(host));
  // The last one of an even number meets whoever would have a rest.
  const std::uint32_t last = hosts - 1;
  if (host != last) return other(host) == host ? last : other(host);
  std::uint32_t resting = 0;
  while (other(resting) != resting) ++resting;
  return resting;
}

/// In which round two hosts meet. REQUIRES: a != b, both < hosts.
[[nodiscard]] constexpr std::uint32_t round_of(std::uint32_t hosts, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t last = hosts - 1;
  if (hosts % 2 == 0 && a == last) return 2 * b % rounds_of(hosts);
  if (hosts % 2 == 0 && b == last) return 2 * a % rounds_of(hosts);
  return (a + b) % rounds_of(hosts);
}

}  // namespace aplib::launch::net
