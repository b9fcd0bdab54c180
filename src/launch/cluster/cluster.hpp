// SPDX-License-Identifier: MIT
// Cluster: what a cluster file says, checked. docs/cluster-file.md has every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "aplib/options.hpp"

namespace aplib::launch {

/// Who starts the process of a host.
enum class LaunchKind : std::uint8_t { ssh, local, slurm, pmix, command };

/// What the speed of a host is measured by, for cells = "auto".
struct Speed {
  enum class Kind : std::uint8_t { memory, compute, number, command };
  Kind kind = Kind::memory;
  double number = 0;    ///< Kind::number: as told, any unit, the same for all hosts.
  std::string command;  ///< Kind::command: prints a number, larger is faster; run on the host.
};

struct ClusterHost {
  std::string name;  ///< "ws1": for people, for ssh when there is no address.
  std::string
      address;  ///< Empty: the name is looked up, or the address by which the host reached the launcher is taken.
  LaunchKind launch = LaunchKind::ssh;
  std::string command;                 ///< LaunchKind::command: "…{cmd}…".
  std::optional<std::uint32_t> cells;  ///< Nothing: "auto".
  std::string threads;                 ///< As the option of the machine; empty: the machine's.
  Speed speed;
  std::string aprun;   ///< Path of aprun on that host; empty: the launcher's own path.
  std::string folder;  ///< Working directory there; empty: the launcher's.
  int line = 0;        ///< Where the host stands in the file, for messages.
};

struct Cluster {
  std::string file;  ///< Path of the cluster file, for messages.
  /// Nothing: "auto", as many as suit the hosts.
  std::optional<Grid> grid;
  std::string program;
  std::string host_program;
  std::vector<std::string> args;
  Options
      options;  ///< [machine] and [comm]: those that are rows of the option table; the rest default or from the environment.
  std::vector<ClusterHost> hosts;
};

/// Reads and checks. Throws Error(bad_option): "cluster.toml:12:9: host 'ws1': cells = "many": use a number of cells or "auto"", with the nearest known key for an
/// unknown one. `environment_too`: APLIB_* variables give what the file leaves open.
[[nodiscard]] Cluster read_cluster(const std::string& path);
/// The same from text; `name` for messages.
[[nodiscard]] Cluster parse_cluster(std::string_view text, const std::string& name);

/// How many cells each host gets, in order, and the grid.
struct Shares {
  Grid grid;
  std::vector<std::uint32_t>
      cells;  ///< By host. Consecutive: host h carries the cells after those of the hosts before it.
};

/// `speeds`: by host, in one unit, needed for hosts with cells = "auto" (others 0). Shares out so that all finish together as nearly as can be; a grid of "auto" is chosen so that they do. Throws
/// Error(bad_option), naming the file, when the numbers contradict each other (cells of hosts and grid).
[[nodiscard]] Shares share_cells(const Cluster& cluster, const std::vector<double>& speeds);

}  // namespace aplib::launch
