// SPDX-License-Identifier: MIT
// Where the cells of a test are: in one process, or in several processes that are connected by the loop module, with
// its faults, or by a real module.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/sanitizer.hpp"
#include "comm/kind.hpp"
#include "kind_net.hpp"
#include "machines.hpp"
#include "processes.hpp"

namespace aplib::testing_support {

struct Placement {
  std::string name;
  Grid grid;
  std::uint32_t threads;
  std::vector<std::uint32_t> processes;  ///< Number of cells of each. Empty: one process.
  comm::loop::LoopFaults faults;
  std::unique_ptr<comm::ModuleKind> (*kind)();  ///< This module, instead of loop.
  std::string provider = {};                    ///< For module rdma.
  bool in_turns = false;                        ///< The processes' cells alternate.

  friend void PrintTo(const Placement& placement, std::ostream* out) { *out << placement.name; }
};

inline void run_on(const Placement& placement, const std::function<void()>& program, std::uint64_t seed = 1) {
  if (placement.processes.empty()) return run_well({placement.grid, placement.threads}, program);
  CellMap map = CellMap::consecutive(placement.processes);
  if (placement.in_turns) {
    std::vector<std::uint32_t> process_of_cell;
    for (std::uint32_t c = 0; c < map.cells(); ++c) process_of_cell.push_back(c % map.processes());
    map = CellMap::of(map.processes(), process_of_cell);
  }
  Processes processes(placement.grid, map, placement.threads, placement.faults, seed);
  if (placement.kind != nullptr) {
    const std::unique_ptr<comm::ModuleKind> kind = placement.kind();
    comm::test::KindNet net(*kind, static_cast<std::uint32_t>(placement.processes.size()),
                            {.provider = placement.provider});
    for (comm::Peer process = 0; process < placement.processes.size(); ++process)
      processes.modules.push_back(net.module(process));
  }
  const ProcessesOutcome outcome = processes.run(program);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.failure(), "");
  EXPECT_TRUE(outcome.over);
}

inline std::vector<Placement> placements() {
  std::vector<Placement> all{
      {"one_cell", {1, 1}, 1, {}, {}, nullptr},
      {"two_processors", {2, 1}, 2, {}, {}, nullptr},
      {"one_processor", {2, 2}, 1, {}, {}, nullptr},
      {"nine_on_four", {3, 3}, 4, {}, {}, nullptr},
      {"per_cell", {2, 2}, Options::threads_per_cell, {}, {}, nullptr},
      {"two_processes", {2, 1}, 1, {1, 1}, {}, nullptr},
      {"three_processes", {3, 3}, 2, {4, 1, 4}, {.delay_polls_max = 3, .piece_bytes_max = 3000}, nullptr},
      {"three_parts_in_turns", {3, 3}, 2, {3, 3, 3}, {.delay_polls_max = 3}, nullptr, {}, true},
      {"parts_that_hold_back", {2, 2}, 2, {2, 2}, {.piece_bytes_max = 20'000, .hold_back_bytes = 4096}, nullptr},
      {"parts_over_tcp", {2, 2}, 1, {2, 1, 1}, {}, comm::tcp_kind},
  };
  // Both processes are in this process, and each has its own mapping of the shared memory. ThreadSanitizer does not
  // know that it is the same memory, and misses the synchronisation through it.
  if (!APLIB_TSAN) all.push_back({"parts_over_shm", {2, 2}, 1, {2, 2}, {}, comm::shm_kind});
#ifdef APLIB_TEST_RDMA
  all.push_back({"parts_over_rdma_on_tcp", {2, 2}, 1, {2, 1, 1}, {}, comm::rdma_kind, "tcp"});
  all.push_back({"parts_over_rdma_on_shm", {2, 2}, 1, {2, 2}, {}, comm::rdma_kind, "shm"});
#endif
  return all;
}

inline std::string placement_name(const testing::TestParamInfo<Placement>& info) { return info.param.name; }

}  // namespace aplib::testing_support
