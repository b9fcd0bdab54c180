// SPDX-License-Identifier: MIT
// Cluster: what a cluster file says, checked. docs/cluster-file.md has every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aplib/options.hpp"

namespace aplib::launch::cluster {

/// What starts the process of a host.
enum class LaunchKind : std::uint8_t { ssh, local, slurm, pmix, command };

/// "ssh".
[[nodiscard]] std::string_view launch_text(LaunchKind kind);

/// What the speed of a host is measured by, for cells = "auto".
struct Speed {
  enum class Kind : std::uint8_t { memory, compute, number, command };
  Kind kind = Kind::memory;
  static constexpr double number_min = 1e-6;
  static constexpr double number_max = 1e15;
  double number = 0;    ///< Kind::number: as told, any unit, the same for all hosts.
  std::string command;  ///< Kind::command: a line for sh that prints a number, larger is faster; run on the host.
};

/// A process of the machine and where it runs. `count` of the file is expanded: names are unique.
struct ClusterHost {
  static constexpr std::uint32_t processes_max = 4096;

  std::string name;  ///< "ws1": for people, and for ssh when there is nothing else.
  /// Where the others reach it: an address, or a name that is looked up. Empty: the address by which the host
  /// reached the launcher.
  std::string address;
  LaunchKind launch = LaunchKind::ssh;
  std::string command;  ///< LaunchKind::command: a line for sh with {cmd} or {quoted-cmd}, {host}, {address}.
  std::string ssh;      ///< LaunchKind::ssh: destination; empty: the address, else the name.
  std::vector<std::string> ssh_options;  ///< LaunchKind::ssh: arguments of ssh before the destination.
  std::optional<std::uint32_t> cells;    ///< Nothing: "auto".
  std::string threads;                   ///< As the option of the machine; empty: the machine's.
  Speed speed;
  std::string aprun;   ///< Path of aprun on that host; empty: the launcher's own path.
  std::string folder;  ///< Working directory there; empty: the launcher's.
  int line = 0;        ///< Where the host stands in the file, for messages; 0: it does not.

  /// What ssh is told to connect to.
  [[nodiscard]] const std::string& ssh_destination() const {
    if (!ssh.empty()) return ssh;
    return address.empty() ? name : address;
  }
};

struct Cluster {
  std::string file;  ///< Path of the cluster file, for messages.
  /// Nothing: "auto", as many as suit the hosts.
  std::optional<Grid> grid;
  /// Where the grid is from, for messages: "cluster.toml:3:8: [machine]: grid", "option --cells".
  std::string grid_place;
  std::string program;  ///< As on a command line; empty: the command line has it.
  std::string host_program;
  std::vector<std::string> args;
  /// The rows of the option table that stand in [machine] and [comm]; the rest as given to parse_cluster(). `cells` is
  /// not set: see share_cells().
  Options options;
  /// In the order of the file: host h is process h. Without [[host]]: one, this computer. Empty with slurm and pmix and
  /// no [[host]]: those of the allocation, made from `defaults`.
  std::vector<ClusterHost> hosts;
  ClusterHost defaults;  ///< What [machine] says for all hosts; without a name.
};

/// Reads and checks; what the file leaves open comes from APLIB_* variables. Throws Error(bad_option) with a line
/// for each problem (the first 20): `cluster.toml:12:9: [[host]] ws1: cells = "many": use a number of cells or
/// "auto"`, for an unknown key with the nearest known one.
[[nodiscard]] Cluster read_cluster(const std::string& path);
/// The same from text, without the environment; `name` for messages.
[[nodiscard]] Cluster parse_cluster(std::string_view text, const std::string& name, const Options& open = {});

}  // namespace aplib::launch::cluster
