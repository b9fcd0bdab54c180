// SPDX-License-Identifier: MIT
// Shares: of a machine's cells, by host, and of a computer's CPUs, for processes that run beside each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "launch/cluster/cluster.hpp"

namespace aplib::launch::cluster {

/// What a host said about itself (measure_host() in speed.hpp).
struct HostSpeed {
  double speed = 0;           ///< Work per second, in one unit for all hosts.
  std::uint32_t threads = 1;  ///< That will carry its cells.
};

/// Whether share_cells() needs the hosts' speeds: not when all with cells = "auto" are processes on one computer.
/// Their threads it needs anyway.
[[nodiscard]] bool needs_speeds(const Cluster& cluster);

/// How many cells each host gets, in order, and the grid.
struct Shares {
  Grid grid;
  /// By host. Consecutive: host h carries the cells after those of the hosts before it. At least 1 each.
  std::vector<std::uint32_t> cells;
  /// Of hosts with cells = "auto": speed that the slowest to finish leaves of the sum of the speeds, 0 .. 1, for
  /// programs whose cells have equal work and wait for each other. 1 when speeds are not needed.
  double efficiency = 1;
};

/// Shares the cells out so that all hosts finish together as nearly as can be; a grid of "auto" is chosen so that
/// they do: nearly square, with at least a cell for each thread, and few cells. `speeds`: by host; used for hosts
/// with cells = "auto". Deterministic. Throws Error(bad_option) when numbers of cells contradict each other, naming
/// where they are from.
[[nodiscard]] Shares share_cells(const Cluster& cluster, const std::vector<HostSpeed>& speeds);

// ---- CPUs ----

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
