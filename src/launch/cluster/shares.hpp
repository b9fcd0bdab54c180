// SPDX-License-Identifier: MIT
// Shares out a machine's cells among hosts, and a computer's CPUs among processes that run on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "launch/cluster/cluster.hpp"

namespace aplib::launch::cluster {

/// What a host reports about itself (measure_host() in speed.hpp).
struct HostSpeed {
  double speed = 0;           ///< Work per second, in one unit for all hosts.
  std::uint32_t threads = 1;  ///< Threads that will carry its cells.
};

/// Whether share_cells() needs the hosts' speeds: not if all hosts with cells = "auto" are processes on one computer.
/// It always needs their threads.
[[nodiscard]] bool needs_speeds(const Cluster& cluster);

/// The number of cells of each host, in order, and the grid.
struct Shares {
  Grid grid;
  /// By host, at least 1 each. Cells are consecutive: host h carries the cells after those of the hosts before it.
  std::vector<std::uint32_t> cells;
  /// For hosts with cells = "auto": the share of the sum of the speeds that is used, 0 .. 1, limited by the host that
  /// finishes last, in programs whose cells have equal work and wait for each other. 1 if speeds are not needed.
  double efficiency = 1;
};

/// Shares out the cells so that all hosts finish together as nearly as possible. A grid of "auto" is chosen for that:
/// nearly square, with at least one cell for each thread, and with few cells. `speeds`: by host; used for hosts with
/// cells = "auto". Deterministic. Throws Error(bad_option) when numbers of cells contradict each other, and names where
/// they come from.
[[nodiscard]] Shares share_cells(const Cluster& cluster, const std::vector<HostSpeed>& speeds);

// ---- CPUs ----

/// A process, as it describes itself.
struct CpuUser {
  std::string host_id{};              ///< The id of its computer.
  std::vector<std::uint32_t> cpus{};  ///< CPUs that it may use.
  std::string threads{};              ///< The user's choice, in the form of the option; empty: auto.
};

struct CpuShare {
  std::vector<std::uint32_t> cpus{};  ///< CPUs to use; empty: all that it may use.
  bool alone = true;                  ///< No other process has the same CPUs.
  std::uint32_t threads = 0;          ///< For threads = auto: at most this many; 0: no change.
};

/// Processes of one computer that may use the same CPUs get parts of them, as equal as possible, while there are
/// enough. Otherwise they share them, with a thread each. Different sets of CPUs are somebody's choice and stay.
[[nodiscard]] std::vector<CpuShare> share_cpus(const std::vector<CpuUser>& users);

/// Applies a share to a process: no binding to cores that others also use, and polls that are brief there unless the
/// user has set their time.
void apply_share(Options& options, const CpuShare& share);

}  // namespace aplib::launch::cluster
