// SPDX-License-Identifier: MIT
#include "base/cpus.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/text.hpp"

namespace aplib {
namespace {

namespace fs = std::filesystem;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

constexpr unsigned cpu_limit = 1U << 20;  // where we stop enlarging the mask: far above any kernel's NR_CPUS

/// A cgroup hierarchy that can hold CPU limits, as /proc/self/mountinfo shows it.
struct Mount {
  std::string root;   ///< the cgroup that is visible at `point`; a container may see only its own part
  std::string point;  ///< where it is mounted
  bool unified;       ///< cgroup v2
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool has_word(const std::string& list, std::string_view word) {
  return std::ranges::count(split(list, ','), word) != 0;
}

/// mountinfo writes blanks and backslashes of a path as three octal digits.
std::string unescape(const std::string& path) {
  std::string plain;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto octal = [&](std::size_t at) { return path[at] >= '0' && path[at] <= '7'; };
    if (path[i] == '\\' && i + 3 < path.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      plain += static_cast<char>((path[i + 1] - '0') * 64 + (path[i + 2] - '0') * 8 + (path[i + 3] - '0'));
      i += 3;
    } else {
      plain += path[i];
    }
  }
  return plain;
}

std::vector<Mount> cgroup_mounts(const fs::path& root) {
  std::vector<Mount> mounts;
  std::ifstream in(root / "proc/self/mountinfo");
  // id parent device root point options [optional ...] - type source super-options
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> fields = split(line, ' ');
    const auto dash = std::ranges::find(fields, "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    const bool unified = dash[1] == "cgroup2";
    if (!unified && !(dash[1] == "cgroup" && has_word(dash[3], "cpu"))) continue;
    mounts.push_back({unescape(fields[3]), unescape(fields[4]), unified});
  }
  return mounts;
}

/// Path of this process's cgroup in the v2 hierarchy or in the v1 one with the cpu controller.
std::optional<std::string> own_cgroup(const fs::path& root, bool unified) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // id:controllers:path, where v2 has no controllers
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : has_word(controllers, "cpu")) return line.substr(second + 1);
  }
  return std::nullopt;
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<double> ratio(std::string_view quota, std::string_view period) {
  // "max" and "-1" mean no limit and are not numbers here.
  const auto q = text::parse_number(quota);
  const auto p = text::parse_number(period);
  if (!q || !p || *q == 0 || *p == 0) return std::nullopt;
  return static_cast<double>(*q) / static_cast<double>(*p);
}

std::optional<double> quota_of(const fs::path& group, bool unified) {
  if (!unified) return ratio(first_line(group / "cpu.cfs_quota_us"), first_line(group / "cpu.cfs_period_us"));
  const std::vector<std::string> fields = split(first_line(group / "cpu.max"), ' ');
  return fields.size() == 2 ? ratio(fields[0], fields[1]) : std::nullopt;
}

/// Our cgroup's path below the mount point; empty where we can see no further than the mount point itself.
fs::path below_mount(const std::string& cgroup, const std::string& mount_root) {
  const fs::path relative = fs::path(cgroup).lexically_relative(mount_root);
  if (relative.empty() || relative == "." || *relative.begin() == "..") return {};
  return relative;
}

}  // namespace

std::vector<unsigned> allowed_cpus() {
  for (unsigned count = 1024; count <= cpu_limit; count *= 2) {
    const CpuSet set(CPU_ALLOC(count));
    if (!set) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;  // the kernel's mask is larger
      break;
    }
    std::vector<unsigned> cpus;
    for (unsigned cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {0};  // the system does not tell: one CPU is certain
}

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> smallest;
  for (const Mount& mount : cgroup_mounts(root)) {
    const auto cgroup = own_cgroup(root, mount.unified);
    if (!cgroup) continue;
    const fs::path point = root / fs::path(mount.point).relative_path();
    for (fs::path below = below_mount(*cgroup, mount.root);; below = below.parent_path()) {
      const auto quota = quota_of(point / below, mount.unified);
      if (quota) smallest = smallest ? std::min(*smallest, *quota) : *quota;
      if (below.empty()) break;
    }
  }
  return smallest;
}

std::uint32_t usable_cpu_count(std::size_t allowed, std::optional<double> quota) {
  double count = static_cast<double>(std::max<std::size_t>(allowed, 1));
  if (quota) count = std::min(count, std::max(1.0, std::ceil(*quota)));
  return static_cast<std::uint32_t>(count);
}

std::string bind_this_thread(unsigned cpu) {
  const CpuSet set(CPU_ALLOC(cpu + 1));
  int error = ENOMEM;
  if (set) {
    const std::size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
    CPU_ZERO_S(bytes, set.get());
    CPU_SET_S(cpu, bytes, set.get());
    error = pthread_setaffinity_np(pthread_self(), bytes, set.get());
  }
  if (error == 0) return {};
  return fmt::format("cannot bind a thread to core {}: {} ({}); it runs unbound, bind=off avoids this message", cpu,
                     std::generic_category().message(error), error);
}

}  // namespace aplib
