// SPDX-License-Identifier: MIT
// Cluster: the checked content of a cluster file. docs/cluster-file.md has every key.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aplib/options.hpp"

namespace aplib::launch::cluster {

/// What starts the process of a host.
/// `keeper`: a keeper that stands there (launch/pool), which no file asks for.
enum class LaunchKind : std::uint8_t { ssh, local, slurm, pmix, command, keeper };

/// "ssh".
[[nodiscard]] std::string_view launch_text(LaunchKind kind);

/// Whether such a process speaks with the launcher over its standard input and output. The others call the launcher,
/// over the network: srun mixes what its tasks write, and nobody says what a user's command does to it.
[[nodiscard]] constexpr bool speaks_by_streams(LaunchKind kind) {
  return kind == LaunchKind::ssh || kind == LaunchKind::local || kind == LaunchKind::keeper;
}

/// How the speed of a host is measured, for cells = "auto".
struct Speed {
  enum class Kind : std::uint8_t { memory, compute, number, command };
  Kind kind = Kind::memory;
  static constexpr double number_min = 1e-6;
  static constexpr double number_max = 1e15;
  double number = 0;    ///< Kind::number: as given, in any unit that is the same for all hosts.
  std::string command;  ///< Kind::command: a line for sh, run on the host, that prints a number; larger is faster.
};

/// A process of the machine and where it runs. `count` in the file is expanded, so names are unique.
struct ClusterHost {
  static constexpr std::uint32_t processes_max = 4096;

  std::string name;  ///< "ws1": for people, and for ssh if nothing else is given.
  /// Where the other processes reach it: an address, or a name to look up. Empty: the address by which ssh has reached
  /// the host, or the host the launcher.
  std::string address;
  LaunchKind launch = LaunchKind::ssh;
  std::string command;  ///< LaunchKind::command: a line for sh with {cmd} or {quoted-cmd}, {host}, {address}.
  /// LaunchKind::ssh: destination; empty: the address, or the name. LaunchKind::slurm: Slurm's name; empty: the name.
  std::string ssh;
  std::vector<std::string> ssh_options;  ///< LaunchKind::ssh: arguments of ssh before the destination.
  std::optional<std::uint32_t> cells;    ///< Nothing: "auto".
  std::string threads;                   ///< In the form of the option; empty: the machine's.
  Speed speed;
  std::string aprun;              ///< Path of aprun on that host; empty: the launcher's own path.
  std::string folder;             ///< Working directory there; empty: the launcher's.
  std::string standing_keeper{};  ///< In a pool: the socket on that host of a keeper that others start (systemd).
  std::string keeper{};           ///< LaunchKind::keeper: the socket of this computer that leads to it.
  std::string keeper_key{};       ///< LaunchKind::keeper: of the pool.
  std::chrono::nanoseconds keeper_patience = std::chrono::seconds(30);  ///< LaunchKind::keeper: for a start's begin.
  std::string reached{};     ///< LaunchKind::keeper: the address by which ssh has reached it; empty: unknown.
  bool is_here = false;      ///< LaunchKind::keeper: it is on this computer.
  bool process = false;      ///< Its cells are ordinary processes.
  std::string gateway{};     ///< LaunchKind::ssh: the way there (ProxyJump); empty: ssh knows it.
  std::uint32_t site = 0;    ///< Hosts of one site reach each other. 0: of none; else Cluster::sites[site - 1].
  std::uint32_t number = 1;  ///< Of the process among those that `count` gives its host.
  int line = 0;              ///< The host's line in the file, for messages; 0: not in the file.

  /// The destination that ssh connects to.
  [[nodiscard]] const std::string& ssh_destination() const {
    if (!ssh.empty()) return ssh;
    return address.empty() ? name : address;
  }
};

/// Files that go along with the machine, or that come back: [[file]].
struct ClusterFile {
  std::string source{};  ///< A path of this computer; `fetch`: a pattern of names on the hosts.
  /// Where it goes in the working folder of the hosts; empty: under its own path or name. `fetch`: a folder of this
  /// computer; empty: the current one.
  std::string target{};
  std::vector<std::string> hosts{};  ///< Empty: all.
  bool fetch = false;
  bool replace = false;  ///< Also over a file that is there and differs.

  /// Whether it is for that host; `ws1` means also ws1-1 and others that come from its count.
  [[nodiscard]] bool is_for(std::string_view host) const;
};

/// Hosts that reach each other, behind a gateway to which ssh leads: [[site]].
struct ClusterSite {
  std::string gateway{};             ///< Destination of ssh.
  std::vector<std::string> hosts{};  ///< Empty: all that ssh starts.
  std::string aprelay{};             ///< Path there; empty: beside aprun.
  int line = 0;

  /// Whether it is there; `ws1` means also ws1-1 and others that come from its count.
  [[nodiscard]] bool has(const ClusterHost& host) const;
};

struct Cluster {
  std::string file;  ///< Path of the cluster file, for messages.
  /// Nothing: "auto", as many cells as suit the hosts.
  std::optional<Grid> grid;
  /// Where the grid comes from, for messages: "cluster.toml:3:8: [machine]: grid", "option --cells".
  std::string grid_place;
  std::string program;  ///< As on a command line; empty: the command line has it.
  std::string host_program;
  std::vector<std::string> args;
  /// The options that [machine] and [comm] give; the rest as given to parse_cluster(). `cells` is not set: see
  /// share_cells().
  Options options;
  /// In the order of the file: host h is process h. Without [[host]]: only this computer. Empty with slurm or pmix and
  /// no [[host]]: the hosts are those of the allocation, made from `defaults`.
  std::vector<ClusterHost> hosts;
  std::vector<ClusterFile> files;
  std::vector<ClusterSite> sites;
  std::chrono::nanoseconds keeper_idle = std::chrono::hours(8);  ///< Of a pool: without a run, a keeper ends then.
  std::string keeper_key;  ///< Of a pool: the file with its key; empty: each time a new one.
  std::uint32_t need = 0;  ///< Of a pool: hosts with which a machine starts at least; 0: all.
  ClusterHost defaults;    ///< What [machine] says about all hosts; without a name.
};

/// Reads and checks a cluster file. What the file leaves open comes from APLIB_* variables. Throws Error(bad_option)
/// with a line for each problem (the first 20): `cluster.toml:12:9: [[host]] ws1: cells = "many": use a number of cells
/// or "auto"`, for an unknown key with the nearest known one.
[[nodiscard]] Cluster read_cluster(const std::string& path);
/// The same from text, without the environment. `name` is for messages.
[[nodiscard]] Cluster parse_cluster(std::string_view text, const std::string& name, const Options& open = {});

/// Gives each cell for which `is_process` says so a process of its own: a host that runs several becomes several.
/// Throws Error(bad_option) where the numbers of the hosts' cells are not known.
void part_processes(Cluster& cluster, const std::function<bool(std::uint32_t cell)>& is_process);

}  // namespace aplib::launch::cluster
