// SPDX-License-Identifier: MIT
// Shares of cells. A machine whose cells have equal work and wait for each other, as a solver's do at the end of
// each sweep, is as fast as its slowest host. A host with c cells on t threads, speed s, takes ceil(c / t) * t / s:
// the busiest thread decides. Cells are dealt one by one to the host that then takes the least time. Because no
// host becomes faster by one more cell, no other way of dealing ends earlier (any other must give some host at
// least as many as this one's slowest got).
#include "launch/cluster/shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <queue>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/ids.hpp"

namespace aplib::launch::cluster {

namespace {

constexpr double efficiency_aim = 0.99;
/// More cells than this on a thread cost more (messages, instances) than a better share brings. If the share would be
/// worse than `efficiency_least`, there may be up to cells_per_thread_max.
constexpr std::uint32_t cells_per_thread_usual = 16;
constexpr double efficiency_least = 0.97;
constexpr std::uint32_t cells_per_thread_max = 64;

/// A host with cells = "auto".
struct Taker {
  std::size_t host = 0;
  double speed = 1;
  std::uint32_t threads = 1;
  std::uint32_t cells = 0;

  [[nodiscard]] double time(std::uint32_t with) const {
    return static_cast<double>((with + threads - 1) / threads) * threads / speed;
  }
};

/// Deals cells to takers, always in the same order.
class Dealer {
 public:
  explicit Dealer(std::vector<Taker>& takers) : takers_(takers), queue_(Later{takers}) {
    for (std::size_t t = 0; t < takers.size(); ++t) {
      speeds_ += takers[t].speed;
      dealt_ += takers[t].cells;
      slowest_ = std::max(slowest_, takers[t].time(takers[t].cells));
      queue_.push(t);
    }
  }

  void deal() {
    const std::size_t next = queue_.top();
    queue_.pop();
    Taker& taker = takers_[next];
    ++taker.cells;
    ++dealt_;
    slowest_ = std::max(slowest_, taker.time(taker.cells));
    queue_.push(next);
  }

  [[nodiscard]] std::uint32_t dealt() const { return dealt_; }
  [[nodiscard]] double efficiency() const { return dealt_ / slowest_ / speeds_; }

 private:
  struct Later {
    const std::vector<Taker>& takers;
    bool operator()(std::size_t a, std::size_t b) const {
      const double time_a = takers[a].time(takers[a].cells + 1);
      const double time_b = takers[b].time(takers[b].cells + 1);
      if (time_a != time_b) return time_a > time_b;
      // Of equals, the one with the lowest load for its speed comes first, then the first in the file.
      const double load_a = takers[a].cells / takers[a].speed;
      const double load_b = takers[b].cells / takers[b].speed;
      return load_a != load_b ? load_a > load_b : a > b;
    }
  };

  std::vector<Taker>& takers_;
  std::priority_queue<std::size_t, std::vector<std::size_t>, Later> queue_;
  std::uint32_t dealt_ = 0;
  double speeds_ = 0;
  double slowest_ = 0;
};

/// The grid of so many cells that is nearest to a square, and not higher than wide.
Grid near_square(std::uint32_t cells) {
  auto ny = static_cast<std::uint32_t>(std::sqrt(static_cast<double>(cells)));
  while (ny > 1 && cells % ny != 0) --ny;
  ny = std::max(ny, 1U);
  return {cells / ny, ny};
}

/// The cost of a grid: its number of cells, and more if it is far from a square, as messages grow with the outline.
double cost(std::uint32_t cells) {
  const Grid grid = near_square(cells);
  return (grid.nx + grid.ny) * std::sqrt(static_cast<double>(cells)) / 2;
}

/// Deals until the grid is good enough. Returns the cheapest grid that reaches the aim, or else the nearest to it.
std::uint32_t best_count(std::vector<Taker> takers, std::uint32_t fixed) {
  std::uint64_t threads = 0;
  for (const Taker& taker : takers) threads += taker.threads;
  const auto limit = [&](std::uint32_t per_thread) {
    return std::min<std::uint64_t>(fixed + per_thread * threads, cell_count_max);
  };
  Dealer dealer(takers);
  std::uint32_t best = 0;
  double best_efficiency = 0;
  for (;; dealer.deal()) {
    const std::uint32_t count = fixed + dealer.dealt();
    const double efficiency = std::min(dealer.efficiency(), efficiency_aim);
    if (best == 0 || efficiency > best_efficiency || (efficiency == best_efficiency && cost(count) < cost(best))) {
      best = count;
      best_efficiency = efficiency;
    }
    // No grid of more cells than this costs less.
    if (best_efficiency == efficiency_aim && count >= cost(best)) return best;
    if (count >= limit(best_efficiency < efficiency_least ? cells_per_thread_max : cells_per_thread_usual)) return best;
  }
}

std::string place(const Cluster& cluster) {
  return cluster.grid_place.empty() ? fmt::format("{}: grid", cluster.file) : cluster.grid_place;
}

/// "ws1: 4, ws2: 2, ...".
std::string fixed_text(const Cluster& cluster) {
  constexpr int shown_max = 8;
  std::string text;
  int shown = 0;
  for (const ClusterHost& host : cluster.hosts) {
    if (!host.cells) continue;
    if (shown == shown_max) return text + ", ...";
    text += fmt::format("{}{}: {}", shown == 0 ? "" : ", ", host.name, *host.cells);
    ++shown;
  }
  return text;
}

[[noreturn]] void refuse(const std::string& text) { throw Error(Errc::bad_option, text); }

std::uint32_t fixed_cells(const Cluster& cluster) {
  std::uint64_t fixed = 0;
  for (const ClusterHost& host : cluster.hosts) fixed += host.cells.value_or(0);
  if (fixed > cell_count_max) {
    refuse(fmt::format("{}: the hosts have {} cells ({}), but a machine has at most {}: give them fewer", cluster.file,
                       fixed, fixed_text(cluster), cell_count_max));
  }
  return static_cast<std::uint32_t>(fixed);
}

/// Whether two processes are known to be equally fast, because they share a computer.
bool same_speed(const ClusterHost& a, const ClusterHost& b) {
  if (&a == &b) return true;
  const bool measured = a.speed.kind == Speed::Kind::memory || a.speed.kind == Speed::Kind::compute;
  if (!measured || a.speed.kind != b.speed.kind || a.launch != b.launch || a.threads != b.threads) return false;
  if (a.launch == LaunchKind::ssh) return a.ssh_destination() == b.ssh_destination() && a.ssh_options == b.ssh_options;
  if (a.launch == LaunchKind::keeper) return a.keeper == b.keeper;
  return a.launch == LaunchKind::local;
}

std::vector<Taker> takers_of(const Cluster& cluster, const std::vector<HostSpeed>& speeds) {
  std::vector<Taker> takers;
  for (std::size_t h = 0; h < cluster.hosts.size(); ++h) {
    if (cluster.hosts[h].cells) continue;
    takers.push_back({.host = h});
    if (h < speeds.size()) {
      takers.back().speed = speeds[h].speed;
      takers.back().threads = std::clamp(speeds[h].threads, 1U, static_cast<std::uint32_t>(cell_count_max));
    }
  }
  if (!needs_speeds(cluster)) {
    for (Taker& taker : takers) taker.speed = 1;
  }
  for (const Taker& taker : takers) {
    if (std::isfinite(taker.speed) && taker.speed > 0) continue;
    const ClusterHost& host = cluster.hosts[taker.host];
    refuse(
        fmt::format("{}:{}: [[host]] {}: cells = \"auto\": {} is not a speed: give the host a number of cells, or "
                    "another speed",
                    cluster.file, host.line, host.name, taker.speed));
  }
  return takers;
}

void check_grid(const Cluster& cluster, Grid grid, std::uint32_t fixed, std::size_t takers) {
  const auto text = fmt::format("{}: {}x{} is {} cells", place(cluster), grid.nx, grid.ny, grid.count());
  if (takers == 0 && fixed != grid.count()) {
    refuse(
        fmt::format("{}, but the hosts have {} ({}): make the numbers agree, or write cells = \"auto\" for a host or "
                    "grid = \"auto\"",
                    text, fixed, fixed_text(cluster)));
  }
  if (grid.count() < fixed + takers) {
    refuse(fmt::format("{}, but the hosts need {}{}: use a larger grid or fewer hosts", text,
                       fixed == 0 ? std::string() : fmt::format("{} ({}), and ", fixed, fixed_text(cluster)),
                       takers == 1 ? std::string("1 for the one with cells = \"auto\"")
                                   : fmt::format("1 for each of the {} with cells = \"auto\"", takers)));
  }
}

}  // namespace

bool needs_speeds(const Cluster& cluster) {
  const auto is_auto = [](const ClusterHost& host) { return !host.cells; };
  const auto first = std::ranges::find_if(cluster.hosts, is_auto);
  return std::any_of(first, cluster.hosts.end(),
                     [&](const ClusterHost& host) { return is_auto(host) && !same_speed(host, *first); });
}

Shares share_cells(const Cluster& cluster, const std::vector<HostSpeed>& speeds) {
  const std::uint32_t fixed = fixed_cells(cluster);
  std::vector<Taker> takers = takers_of(cluster, speeds);
  Shares shares;
  if (cluster.grid) {
    check_grid(cluster, *cluster.grid, fixed, takers.size());
    shares.grid = *cluster.grid;
    for (Taker& taker : takers) taker.cells = 1;
  } else {
    std::uint64_t least = fixed;
    for (const Taker& taker : takers) least += taker.threads;
    for (Taker& taker : takers) taker.cells = least > cell_count_max ? 1 : taker.threads;
    if (fixed + takers.size() > cell_count_max) check_grid(cluster, {cell_count_max, 1}, fixed, takers.size());
    shares.grid = near_square(takers.empty() ? fixed : best_count(takers, fixed));
  }
  if (!takers.empty()) {
    Dealer dealer(takers);
    while (fixed + dealer.dealt() < shares.grid.count()) dealer.deal();
    if (takers.size() > 1) shares.efficiency = dealer.efficiency();
  }
  for (const ClusterHost& host : cluster.hosts) shares.cells.push_back(host.cells.value_or(0));
  for (const Taker& taker : takers) shares.cells[taker.host] = taker.cells;
  return shares;
}

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
  // They offer their core meanwhile, but all that wait look first.
  if (!share.alone && !options.poll_time) options.poll_time = std::chrono::microseconds(20);
}

}  // namespace aplib::launch::cluster
