// SPDX-License-Identifier: MIT
// Shares of a computer's CPUs, for processes that run beside each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aplib/options.hpp"

namespace aplib::launch::cluster {

/// A process, as it introduced itself.
struct CpuUser {
  std::string host_id{};              ///< Of its computer.
  std::vector<std::uint32_t> cpus{};  ///< That it may run on.
  std::string threads{};              ///< That the user wants: as the option; empty: auto.
};

struct CpuShare {
  std::vector<std::uint32_t> cpus{};  ///< To keep to; empty: all that it may.
  bool alone = true;                  ///< No other process has the same CPUs.
  bool crowded = false;               ///< More processes than CPUs.
  std::uint32_t threads = 0;          ///< For threads = auto: at most so many; 0: no change.
};

/// Processes of one computer that may run on the same CPUs get parts of them, as equal as can be, while there are
/// enough; else they share, with a thread each. Different sets of CPUs were somebody's choice, and stay.
[[nodiscard]] std::vector<CpuShare> share_cpus(const std::vector<CpuUser>& users);

/// What a share means for a process: no binding to cores that others use too, and no polling there unless the user
/// wants it.
void apply_share(Options& options, const CpuShare& share);

}  // namespace aplib::launch::cluster
