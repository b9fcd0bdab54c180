// SPDX-License-Identifier: MIT
// The text of `aprun -f FILE --dry-run`: who runs what and where.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/cluster/cluster.hpp"

namespace aplib::launch::cluster {

struct PlannedHost {
  std::string name;
  LaunchKind launch = LaunchKind::local;
  std::string address;      ///< Of its process, for the others.
  std::string address_why;  ///< "the cluster file", "by which it reached aprun".
  std::uint32_t first_cell = 0;
  std::uint32_t cells = 0;
  std::uint32_t threads = 0;            ///< That carry the cells; 0: not known.
  double speed = 0;                     ///< 0: not measured.
  std::vector<std::string> modules{};   ///< That it can use, the best first.
  std::vector<std::string> left_out{};  ///< That it cannot, each with the reason: "rdma: no RDMA device is there".
};

struct ClusterPlan {
  std::string file;          ///< The cluster file.
  std::string program;       ///< Path.
  std::string build_id;      ///< Empty: none.
  std::string host_program;  ///< Empty: none.
  std::vector<std::string> args;
  Grid grid;
  bool grid_auto = false;
  double efficiency = 1;           ///< Shares::efficiency.
  std::string ports;               ///< As the option; empty: the system chooses.
  std::string secure;              ///< As the option.
  std::vector<PlannedHost> hosts;  ///< By process.
};

/// Lines with ends, a table of hosts at the end.
[[nodiscard]] std::string cluster_plan_text(const ClusterPlan& plan);

}  // namespace aplib::launch::cluster
