// SPDX-License-Identifier: MIT
// Placement: how many processors carry the cells, on which cores, and which cells go where.
//
//   Placement placement = plan_placement(options);
//   processor_of_cell(cid, options.cells.count(), placement.processors);
//
// A core here is what the kernel schedules on, a hardware thread; hardware threads of one physical core are used last.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "base/cpus.hpp"  // bind_this_thread()

struct hwloc_topology;

namespace aplib {

struct Placement {
  std::uint32_t processors = 1;  ///< threads to start, never more than cells
  std::vector<unsigned>
      core_of_processor;           ///< the system's number of each one's core; empty when processors are not bound
  std::uint32_t usable_cores = 1;  ///< by affinity mask and CPU quota
  bool oversubscribed = false;     ///< more processors than usable cores
  bool limited = false;            ///< a CPU quota pays for less than all cores
};

/// Whether programs make threads: these inherit the core to which the processor of their cell is bound.
enum class ProgramThreads : std::uint8_t { none, some };

/// Processors stay on cores of their own: with enough cores, no CPU quota, and no threads that would crowd there while
/// other cores are free.
[[nodiscard]] bool are_bound(const Options& options, const Placement& placement, ProgramThreads threads) noexcept;

/// The plan for this process as its affinity mask and cgroup are now. Processors are bound only when there are at least
/// two, each gets a core of its own, and no CPU quota is below the affinity mask (under a quota the scheduler must be
/// free to move them), see are_bound(). Call from: any thread whose affinity mask the processors shall inherit. Throws
/// Error(bad_option) as Options::check(). `root` is where /proc and /sys/fs/cgroup are looked up.
[[nodiscard]] Placement plan_placement(const Options& options, ProgramThreads threads = ProgramThreads::none,
                                       const std::filesystem::path& root = "/");

/// Contiguous blocks of cells, whose sizes differ by at most one.
[[nodiscard]] constexpr std::uint32_t processor_of_cell(std::uint32_t cid, std::uint32_t cells,
                                                        std::uint32_t processors) noexcept {
  return static_cast<std::uint32_t>(std::uint64_t{cid} * processors / cells);
}

/// The first cell of a processor's block; for `processor` == `processors`, one past the last cell.
[[nodiscard]] constexpr std::uint32_t first_cell_of_processor(std::uint32_t processor, std::uint32_t cells,
                                                              std::uint32_t processors) noexcept {
  return static_cast<std::uint32_t>((std::uint64_t{processor} * cells + processors - 1) / processors);
}

/// How long an idle processor polls before it sleeps: as chosen, or 50 us where it has a core of its own: some more
/// than falling asleep and being woken take (30 us), and than another processor needs to copy 1 MiB here. 20 us
/// under a CPU quota, which pays for the polling, too; 0 where it takes another's time.
[[nodiscard]] std::chrono::nanoseconds poll_time(const Options& options, const Placement& placement);

/// Cores, caches and packages of a computer, without its devices.
class Topology {
 public:
  /// Of this computer: about 1 ms. Falls back to an empty one when it cannot be read.
  Topology();
  /// Of a described one ("package:2 l3:1 core:4 pu:2"), for tests.
  explicit Topology(const std::string& description);

  /// `count` of the `allowed` cores, in an order where neighbours share caches. They are taken from the smallest
  /// part of the computer that holds enough of them around core `here`, and one from each physical core while that
  /// suffices. So two jobs that each use a part of a computer are likely to settle on different cores: the kernel
  /// starts them on different ones.
  [[nodiscard]] std::vector<unsigned> choose_cores(std::span<const unsigned> allowed, std::uint32_t count,
                                                   unsigned here) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  std::unique_ptr<hwloc_topology, Destroy> topology_;
};

}  // namespace aplib
