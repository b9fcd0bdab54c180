// SPDX-License-Identifier: MIT
#include "kernel/placement.hpp"

#include <hwloc.h>
#include <sched.h>
#include <sys/single_threaded.h>

#include <algorithm>
#include <cstdlib>

namespace aplib {
namespace {

using namespace std::chrono_literals;

/// A physical core, or what is left of it for us.
struct Core {
  hwloc_obj_t object;
  std::vector<unsigned> threads;  ///< allowed hardware threads, the system's numbers
};

/// While it lives, hwloc loads no plug-ins. These find devices, and bring the libraries of X11, OpenCL and XML, which
/// take longer than all else. hwloc loads them before it can be told what is asked for, unless a variable says so.
class WithoutPlugins {
 public:
  // Other threads might read the environment meanwhile.
  WithoutPlugins() : hides_(__libc_single_threaded != 0 && std::getenv(folder) == nullptr) {
    if (hides_) ::setenv(folder, "/dev/null", 1);
  }
  ~WithoutPlugins() {
    if (hides_) ::unsetenv(folder);
  }
  WithoutPlugins(const WithoutPlugins&) = delete;
  WithoutPlugins& operator=(const WithoutPlugins&) = delete;

 private:
  static constexpr const char* folder = "HWLOC_PLUGINS_PATH";

  const bool hides_;
};

hwloc_topology_t new_topology() {
  const WithoutPlugins without_plugins;
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  // Devices take most of the time to find and say nothing about cores.
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
  return topology;
}

hwloc_topology_t load_or_destroy(hwloc_topology_t topology) {
  if (topology == nullptr || hwloc_topology_load(topology) == 0) return topology;
  hwloc_topology_destroy(topology);
  return nullptr;
}

/// The allowed part of every core, in the topology's order: neighbours share the nearest caches.
std::vector<Core> allowed_cores(hwloc_topology_t topology, std::span<const unsigned> allowed) {
  std::vector<Core> cores;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
    if (std::ranges::find(allowed, pu->os_index) == allowed.end()) continue;
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
    if (core == nullptr) core = pu;  // some virtual machines show no cores
    if (cores.empty() || cores.back().object != core) cores.push_back({core, {}});
    cores.back().threads.push_back(pu->os_index);
  }
  return cores;
}

/// The cores of the smallest part of the computer around `here` that has `count` of them; all when no part has.
std::span<const Core> surroundings(std::span<const Core> cores, std::size_t here, std::size_t count) {
  for (hwloc_obj_t part = cores[here].object; part != nullptr; part = part->parent) {
    const auto inside = [&](const Core& core) {
      return hwloc_bitmap_isincluded(core.object->cpuset, part->cpuset) != 0;
    };
    const auto first = std::ranges::find_if(cores, inside);
    const auto last = std::find_if_not(first, cores.end(), inside);
    if (static_cast<std::size_t>(last - first) >= count) return {first, last};
  }
  return cores;
}

}  // namespace

Topology::Topology() : topology_(load_or_destroy(new_topology())) {}

Topology::Topology(const std::string& description) {
  hwloc_topology_t topology = new_topology();
  if (topology != nullptr) hwloc_topology_set_synthetic(topology, description.c_str());
  topology_.reset(load_or_destroy(topology));
}

void Topology::Destroy::operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }

std::vector<unsigned> Topology::choose_cores(std::span<const unsigned> allowed, std::uint32_t count,
                                             unsigned here) const {
  std::vector<unsigned> chosen;
  const std::vector<Core> cores = topology_ ? allowed_cores(topology_.get(), allowed) : std::vector<Core>{};
  std::size_t threads = 0;
  for (const Core& core : cores) threads += core.threads.size();
  if (threads < count) {  // the topology does not know all that the kernel allows: keep the kernel's order
    chosen.assign(allowed.begin(), allowed.begin() + std::min<std::size_t>(count, allowed.size()));
    return chosen;
  }

  if (count <= cores.size()) {
    const auto own =
        std::ranges::find_if(cores, [&](const Core& core) { return std::ranges::count(core.threads, here) != 0; });
    const std::size_t position = own == cores.end() ? 0 : static_cast<std::size_t>(own - cores.begin());
    const std::span<const Core> part = surroundings(cores, position, count);
    const auto offset = static_cast<std::size_t>(&cores[position] - part.data());
    for (const Core& core : part.subspan(std::min(offset, part.size() - count), count)) {
      chosen.push_back(core.threads.front());
    }
    return chosen;
  }

  // More than one per physical core: the second, third, ... hardware threads of the first cores fill up, beside
  // their siblings.
  std::vector<std::size_t> taken(cores.size(), 0);
  for (std::size_t left = count, level = 0; left > 0; ++level) {
    for (std::size_t i = 0; i < cores.size() && left > 0; ++i) {
      if (level >= cores[i].threads.size()) continue;
      ++taken[i];
      --left;
    }
  }
  for (std::size_t i = 0; i < cores.size(); ++i) {
    chosen.insert(chosen.end(), cores[i].threads.begin(),
                  cores[i].threads.begin() + static_cast<std::ptrdiff_t>(taken[i]));
  }
  return chosen;
}

// One processor is left to the scheduler, which keeps a lone thread where it is and moves it when another job comes to
// its core.
bool are_bound(const Options& options, const Placement& placement, ProgramThreads threads) noexcept {
  const bool would_crowd = threads == ProgramThreads::some && placement.processors < placement.usable_cores;
  return options.bind && placement.processors >= 2 && !placement.oversubscribed && !placement.limited && !would_crowd;
}

Placement plan_placement(const Options& options, ProgramThreads threads, const std::filesystem::path& root) {
  options.check();
  const std::vector<unsigned> allowed = allowed_cpus();
  const std::uint32_t cells = options.cells.count();

  Placement plan;
  plan.usable_cores = usable_cpu_count(allowed.size(), cpu_quota(root));
  switch (options.threads) {
    case Options::threads_auto:
      plan.processors = std::min(cells, plan.usable_cores);
      break;
    case Options::threads_per_cell:
      plan.processors = cells;
      break;
    default:
      plan.processors = std::min(cells, options.threads);
      break;
  }
  plan.oversubscribed = plan.processors > plan.usable_cores;
  plan.limited = plan.usable_cores < allowed.size();

  if (are_bound(options, plan, threads)) {
    static const Topology computer;  // it does not change, and takes a while to read
    const int here = sched_getcpu();
    plan.core_of_processor =
        computer.choose_cores(allowed, plan.processors, here < 0 ? 0U : static_cast<unsigned>(here));
  }
  return plan;
}

std::chrono::nanoseconds poll_time(const Options& options, const Placement& placement) {
  return options.poll_time.value_or(placement.limited ? 20us : 50us);
}

}  // namespace aplib
