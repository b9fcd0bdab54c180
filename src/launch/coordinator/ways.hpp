// SPDX-License-Identifier: MIT
// Ways: by which way each pair of processes comes to its connection. Processes and relays are tried, and what was found
// is decided here, once, for both ends.
//
// Of the ways that there are, the first of these is taken: direct, where both reach each other; reverse, where one
// reaches the other; one relay that both reach; the relays of both, which the launcher's own relay joins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/wire/way_messages.hpp"

namespace aplib::launch::coordinator {

/// For tests: takes no way that is better than this one.
enum class ForcedWay : std::uint8_t { none, reverse, relay };

/// Two relays, of which the launcher's reaches each, to be joined for a pair.
struct Chain {
  std::size_t first_relay = 0;  ///< Of the first process; 0: the launcher's.
  std::size_t second_relay = 0;
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

struct Ways {
  std::vector<std::vector<wire::PlannedWay>> of{};  ///< By process: what its plan says.
  std::vector<Chain> chains{};
  /// A pair without any way; nothing: every pair has one.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> lost{};
};

/// `found`: by process. `relays`: their names; [0] is the launcher's. `is_apart`: whether a pair was tried; others go
/// directly.
[[nodiscard]] Ways choose_ways(const std::vector<wire::Probed>& found, const std::vector<std::string>& relays,
                               const std::function<bool(std::uint32_t, std::uint32_t)>& is_apart, ForcedWay forced);

/// Whether hosts at these addresses are taken for hosts of one room, where nobody says it: the first half of IPv4
/// addresses is the same, or the first 48 bits of IPv6 addresses.
[[nodiscard]] bool are_near(const std::string& address, const std::string& other);

}  // namespace aplib::launch::coordinator
