// SPDX-License-Identifier: MIT
// What the system lets this process use of its CPUs. A CPU here is what the kernel schedules on: a hardware thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace aplib {

/// CPUs that the calling thread may run on, ascending; threads it starts inherit them. Cpusets (cgroups) are
/// already taken off.
[[nodiscard]] std::vector<unsigned> allowed_cpus();

/// The smallest CPU quota, in CPUs, on the way from this process's cgroup up to the root, of cgroup v1
/// (cpu.cfs_quota_us) and v2 (cpu.max) alike; nothing when there is no limit or it cannot be read. `root` is where
/// /proc and /sys are looked up.
[[nodiscard]] std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// CPUs worth a thread each: the allowed ones, fewer when a quota does not pay for all; at least 1.
[[nodiscard]] std::uint32_t usable_cpu_count(std::size_t allowed, std::optional<double> quota);

/// Keeps the calling thread on one CPU. Returns "", or a warning for people: a thread that is not bound still works.
[[nodiscard]] std::string bind_this_thread(unsigned cpu);

}  // namespace aplib
