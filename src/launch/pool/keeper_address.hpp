// SPDX-License-Identifier: MIT
// KeeperAddress: how a launcher reaches a keeper: a socket of this computer, which leads to the keeper's own, by ssh or
// directly.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/job_key.hpp"
#include "launch/pool/knock.hpp"

namespace aplib::launch::pool {

struct KeeperAddress {
  std::string socket;
  comm::JobKey key;
};

/// The path of a keeper's socket on its own host.
[[nodiscard]] std::string keeper_socket(const std::string& id);

/// Connects to a keeper and knocks. Writing and reading the socket block. Throws Error(failed); the text begins in the
/// middle of a sentence about the host: "its keeper cannot be reached: ...".
[[nodiscard]] os::UniqueFd knock_at(const KeeperAddress& way, const Knock& knock);

struct FactsAnswer {
  std::optional<HostFacts> facts{};
  std::string problem{};  ///< Why there are none: the middle of a sentence about the host.
  std::optional<std::chrono::nanoseconds> round_trip{};  ///< Of one byte, if it was asked for.
};

/// Asks all keepers at once. Blocks for at most `patience`. `measures`: also for the round trips.
[[nodiscard]] std::vector<FactsAnswer> facts_of(std::span<const KeeperAddress> ways, std::chrono::nanoseconds patience,
                                                bool measures = false);
/// Asks one, which is on this computer.
[[nodiscard]] FactsAnswer facts_of(const KeeperAddress& way);

/// Asks a keeper to end, with all that it has started, and waits until it has. Returns "", or what went wrong. Blocks
/// for at most `patience`.
[[nodiscard]] std::string end_keeper(const KeeperAddress& way, std::chrono::nanoseconds patience);

}  // namespace aplib::launch::pool
