// SPDX-License-Identifier: MIT
// Brings the hosts of a pool within reach: starts keepers where none stands, and leads the ways to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "launch/pool/keeper_address.hpp"
#include "launch/pool/pool.hpp"

namespace aplib::launch::pool {

struct Repair {
  std::size_t missing = 0;                        ///< Hosts that were not within reach before.
  std::map<std::size_t, std::string> problems{};  ///< Whole messages, by host of those that are not now.
};
/// Blocks. Throws Error.
[[nodiscard]] Repair repair(const Pool& pool);

/// Throws Error(failed) where the pool has a job that does not run, which says whether it waits, or has ended.
void check_job(const Pool& pool);

/// Why a host is not within reach; "": it is.
[[nodiscard]] std::string problem_of(const FactsAnswer& answer);

/// As Pool::Known has it.
[[nodiscard]] std::int64_t now_in_seconds();
void note(Pool::Known& known, const HostFacts& facts);

}  // namespace aplib::launch::pool
