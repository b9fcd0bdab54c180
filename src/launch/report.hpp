// SPDX-License-Identifier: MIT
// What aprun tells about a run: how the cells ended, or what a run would be; what aprun --list-modules prints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "base/cell_map.hpp"
#include "comm/kind.hpp"
#include "kernel/programs.hpp"
#include "launch/cluster/cluster.hpp"

namespace aplib::launch {

/// "cells 0-3, 7: status 0; cell 5: status 2", by falling number of cells, then by status. Before them "host program:
/// status 3", if that is not 0; then cells that all ended well are left out.
[[nodiscard]] std::string end_summary(const std::vector<int>& cell_status, int host_status = 0);

/// The text of --dry-run without a cluster file, lines with ends.
[[nodiscard]] std::string plan_text(const ProgramSummary& summary, const Options& options);

struct PlannedHost {
  std::string name;
  cluster::LaunchKind launch = cluster::LaunchKind::local;
  std::string address;                  ///< Of its process, for the others.
  std::string address_why;              ///< "the cluster file", "by which it reached aprun".
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
  CellMap cells;  ///< Of all hosts.
  bool grid_auto = false;
  double efficiency = 1;           ///< Shares::efficiency.
  std::string ports;               ///< As the option; empty: the system chooses.
  std::string secure;              ///< As the option.
  std::vector<PlannedHost> hosts;  ///< By process.
};

/// The text of `aprun -f FILE --dry-run`, lines with ends: who runs what and where, a table of hosts at the end.
[[nodiscard]] std::string cluster_plan_text(const ClusterPlan& plan);

/// A table of modules, the best first: what each can do, and why it cannot be used with these settings. Behind it
/// files that were refused, with the reasons.
[[nodiscard]] std::string module_table(std::span<const comm::FoundModule> found, const comm::PortSettings& settings);

}  // namespace aplib::launch
