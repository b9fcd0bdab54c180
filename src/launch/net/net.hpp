// SPDX-License-Identifier: MIT
// apctl net: measures the network between all hosts of a cluster or a pool. One machine with a cell on each host runs
// net-probe; where a host or a pair fails, a further machine goes on without it.
#pragma once

#include <optional>
#include <string>

#include "launch/cluster/cluster.hpp"

namespace aplib::launch::net {

/// As the first argument of aprun, which apctl executes for it.
inline constexpr const char* verb = "--net";

struct Request {
  std::string file;  ///< The cluster file; empty: the hosts are those of a pool.
  std::string pool;
  std::string json;     ///< Where the results go, too; empty: nowhere.
  std::string picture;  ///< The same as PNG.
  double seconds = 2;   ///< Of each stream.
};

/// Reads the words behind `apctl net`; words[0] is not looked at. As read_command_line() of aprun's.
[[nodiscard]] std::optional<int> read_request(int count, const char* const* words, Request& into);

/// Measures, and shows the results. Returns the exit status: 0 if all pairs were measured, 1 if not, others as aprun's.
/// `aprun`: its path on this computer. Throws Error when nothing can be started.
[[nodiscard]] int measure_network(const Request& request, const cluster::Cluster& cluster, const std::string& aprun);

}  // namespace aplib::launch::net
