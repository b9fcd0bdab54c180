// SPDX-License-Identifier: MIT
// The texts of aprun about a run: how the cells ended, the plan of a dry run, and the list of modules.
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
#include "launch/program_run.hpp"

namespace aplib::launch {

/// "cells 0-3, 7: status 0; cell 5: status 2", ordered by falling number of cells, then by status. If the host
/// program's status is not 0, "host program: status 3" comes first, and cells that all succeeded are left out.
[[nodiscard]] std::string end_summary(const std::vector<int>& cell_status, int host_status = 0);

/// The text of --dry-run without a cluster file, as whole lines.
[[nodiscard]] std::string plan_text(const ProgramSummary& summary, const Options& options);

/// For both kinds of a dry run: a line for each program but the first, which `cells` cells share with it.
[[nodiscard]] std::string other_programs_text(const RunText& run, std::uint32_t cells);

struct PlannedHost {
  std::string name;
  cluster::LaunchKind launch = cluster::LaunchKind::local;
  std::string address;                 ///< Where others reach its process.
  std::string address_why;             ///< "the cluster file", "by which ssh reached it".
  std::uint32_t threads = 0;           ///< Threads that carry the cells; 0: not known.
  double speed = 0;                    ///< 0: not measured.
  std::vector<std::string> modules{};  ///< The modules that it can use, best first.
  std::vector<std::string>
      left_out{};  ///< The modules that it cannot use, each with the reason: "rdma: no RDMA device is there".
};

struct ClusterPlan {
  std::string file;          ///< The cluster file.
  std::string program;       ///< Path.
  std::string build_id;      ///< Empty: none.
  std::string host_program;  ///< Empty: none.
  std::vector<std::string> args;
  Grid grid;
  CellMap cells;  ///< The map of all hosts.
  bool grid_auto = false;
  double efficiency = 1;           ///< Shares::efficiency.
  std::string ports;               ///< In the form of the option; empty: the system chooses.
  std::string secure;              ///< In the form of the option.
  std::vector<PlannedHost> hosts;  ///< By process.
};

/// The text of `aprun -f FILE --dry-run`, as whole lines: who runs what and where, with a table of hosts at the end.
[[nodiscard]] std::string cluster_plan_text(const ClusterPlan& plan);

/// A table of modules, best first: what each can do, and why it cannot be used with these settings. Files that were
/// refused follow, with the reasons.
[[nodiscard]] std::string module_table(std::span<const comm::FoundModule> found, const comm::PortSettings& settings);

}  // namespace aplib::launch
