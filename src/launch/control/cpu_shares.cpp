// SPDX-License-Identifier: MIT
#include "launch/control/cpu_shares.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

namespace aplib::launch {
namespace {

/// Threads that a process wants on `cpus` CPUs.
std::size_t wanted(const std::string& threads, std::size_t cpus) {
  std::size_t number = 0;
  const auto [stop, error] = std::from_chars(threads.data(), threads.data() + threads.size(), number);
  if (error == std::errc{} && stop == threads.data() + threads.size()) return number;
  return threads.empty() || threads == "auto" ? 1 : cpus + 1;  // per-cell: any number
}

}  // namespace

std::vector<CpuShare> share_cpus(const std::vector<CpuUser>& users) {
  std::map<std::pair<std::string, std::vector<std::uint32_t>>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < users.size(); ++i) groups[{users[i].host_id, users[i].cpus}].push_back(i);
  std::vector<CpuShare> shares(users.size());
  for (const auto& [key, group] : groups) {
    const std::vector<std::uint32_t>& cpus = key.second;
    const std::size_t count = group.size();
    if (count == 1 || cpus.empty()) continue;
    const bool fits = std::ranges::all_of(
        group, [&](std::size_t i) { return wanted(users[i].threads, cpus.size()) <= cpus.size() / count; });
    for (std::size_t place = 0; place < count; ++place) {
      CpuShare& share = shares[group[place]];
      share.alone = fits;
      share.crowded = count > cpus.size();
      share.threads = static_cast<std::uint32_t>(std::max<std::size_t>(1, cpus.size() / count));
      if (!fits) continue;
      const auto begin = cpus.begin() + static_cast<std::ptrdiff_t>(place * cpus.size() / count);
      const auto end = cpus.begin() + static_cast<std::ptrdiff_t>((place + 1) * cpus.size() / count);
      share.cpus.assign(begin, end);
      share.threads = static_cast<std::uint32_t>(share.cpus.size());
    }
  }
  return shares;
}

void apply_share(Options& options, const CpuShare& share) {
  if (share.threads != 0 && options.threads == Options::threads_auto && !share.alone) options.threads = share.threads;
  if (!share.alone) options.bind = false;
  if (!share.alone && !options.poll_time) options.poll_time = std::chrono::nanoseconds(0);
}

}  // namespace aplib::launch
