// SPDX-License-Identifier: MIT
// How cells and cores are shared out. Other speeds: APLIB_TEST_SEED=n.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/ids.hpp"
#include "checks.hpp"
#include "launch/cluster/shares.hpp"

namespace aplib::launch {
namespace {

using Counts = std::vector<std::uint32_t>;

cluster::ClusterHost host(const std::string& name, std::optional<std::uint32_t> cells = std::nullopt) {
  cluster::ClusterHost host;
  host.name = name;
  host.cells = cells;
  return host;
}

cluster::Cluster cluster_of(std::vector<cluster::ClusterHost> hosts, std::optional<Grid> grid = std::nullopt) {
  cluster::Cluster cluster;
  cluster.file = "c.toml";
  cluster.grid = grid;
  if (grid) cluster.grid_place = "c.toml:2:8: [machine]: grid";
  cluster.hosts = std::move(hosts);
  return cluster;
}

std::string share_error(const cluster::Cluster& cluster, const std::vector<cluster::HostSpeed>& speeds = {}) {
  return testing_support::error_text([&] { (void)cluster::share_cells(cluster, speeds); }, Errc::bad_option);
}

/// Time until all cells of a host are done, if each takes 1 / (speed of a thread).
double time_of(std::uint32_t cells, const cluster::HostSpeed& speed) {
  return std::ceil(static_cast<double>(cells) / speed.threads) * speed.threads / speed.speed;
}

TEST(Shares, FixedCellsMakeTheGrid) {
  const cluster::Cluster cluster = cluster_of({host("a", 3), host("b", 5)});
  EXPECT_FALSE(cluster::needs_speeds(cluster));
  const cluster::Shares shares = cluster::share_cells(cluster, {});
  EXPECT_EQ(shares.cells, (Counts{3, 5}));
  EXPECT_EQ(shares.grid, (Grid{4, 2}));
  EXPECT_EQ(cluster::share_cells(cluster_of({host("a", 3), host("b", 5)}, Grid{8, 1}), {}).grid, (Grid{8, 1}));
}

TEST(Shares, OneHostGetsACellForEachThread) {
  const cluster::Cluster cluster = cluster_of({host("a")});
  EXPECT_FALSE(cluster::needs_speeds(cluster));
  EXPECT_EQ(cluster::share_cells(cluster, {{0, 6}}).cells, Counts{6});
  EXPECT_EQ(cluster::share_cells(cluster, {{0, 6}}).grid, (Grid{3, 2}));
  EXPECT_EQ(cluster::share_cells(cluster_of({host("a")}, Grid{5, 5}), {{0, 6}}).cells, Counts{25});
}

TEST(Shares, ProcessesOnOneComputerNeedNoSpeeds) {
  std::vector<cluster::ClusterHost> hosts(4, host("ws1"));
  EXPECT_FALSE(cluster::needs_speeds(cluster_of(hosts)));
  EXPECT_EQ(cluster::share_cells(cluster_of(hosts, Grid{4, 2}), {}).cells, (Counts{2, 2, 2, 2}));
  hosts[3].name = "ws2";
  EXPECT_TRUE(cluster::needs_speeds(cluster_of(hosts)));
  hosts[3].cells = 3;
  EXPECT_FALSE(cluster::needs_speeds(cluster_of(hosts)));
}

TEST(Shares, TheUnequalHostsOfThePaper) {
  const cluster::Cluster cluster = cluster_of({host("slow"), host("fast")});
  EXPECT_TRUE(cluster::needs_speeds(cluster));
  const cluster::Shares shares = cluster::share_cells(cluster, {{2.44, 1}, {4.30, 1}});
  EXPECT_GE(shares.efficiency, 0.99);
  EXPECT_EQ(shares.cells, (Counts{5, 9}));
  EXPECT_EQ(shares.grid, (Grid{7, 2}));
  // A grid of the paper's size, as well as that grid can be shared out.
  EXPECT_EQ(cluster::share_cells(cluster_of({host("slow"), host("fast")}, Grid{4, 2}), {{2.44, 1}, {4.30, 1}}).cells,
            (Counts{3, 5}));
}

TEST(Shares, FixedAndAutoTogether) {
  const cluster::Shares shares =
      cluster::share_cells(cluster_of({host("a"), host("b", 5), host("c")}, Grid{5, 5}), {{1, 1}, {}, {3, 1}});
  EXPECT_EQ(shares.cells, (Counts{5, 5, 15}));
  EXPECT_EQ(shares.efficiency, 1);
}

TEST(Shares, AutoGridsAreEfficientAndSmall) {
  const std::uint64_t seed = testing_support::test_seed(20240311);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::size_t> host_counts(2, 12);
  std::uniform_int_distribution<std::uint32_t> thread_counts(1, 16);
  std::uniform_real_distribution<double> thread_speeds(1.0, 4.0);
  constexpr int machines = 400;
  double least = 1;
  double sum_of_efficiency = 0;
  double sum_of_cells = 0;
  for (int i = 0; i < machines; ++i) {
    std::vector<cluster::ClusterHost> hosts;
    std::vector<cluster::HostSpeed> speeds;
    std::uint32_t threads = 0;
    const std::size_t count = host_counts(random);
    for (std::size_t h = 0; h < count; ++h) {
      hosts.push_back(host("h" + std::to_string(h)));
      const std::uint32_t here = i % 2 == 0 ? 1 : thread_counts(random);
      speeds.push_back({thread_speeds(random) * here, here});
      threads += here;
    }
    const cluster::Shares shares = cluster::share_cells(cluster_of(hosts), speeds);
    const std::uint32_t cells = std::accumulate(shares.cells.begin(), shares.cells.end(), 0U);
    ASSERT_EQ(cells, shares.grid.count());
    ASSERT_GE(shares.grid.nx, shares.grid.ny);
    ASSERT_LE(cells, 64 * threads);
    double slowest = 0;
    double sum = 0;
    for (std::size_t h = 0; h < count; ++h) {
      ASSERT_GE(shares.cells[h], speeds[h].threads);
      slowest = std::max(slowest, time_of(shares.cells[h], speeds[h]));
      sum += speeds[h].speed;
    }
    ASSERT_NEAR(shares.efficiency, cells / slowest / sum, 1e-12);
    ASSERT_GE(shares.efficiency, 0.97);
    least = std::min(least, shares.efficiency);
    sum_of_efficiency += shares.efficiency;
    sum_of_cells += static_cast<double>(cells) / threads;
    const cluster::Shares again = cluster::share_cells(cluster_of(hosts), speeds);
    ASSERT_EQ(again.cells, shares.cells);
    ASSERT_EQ(again.grid, shares.grid);
  }
  std::printf("efficiency: least %.4f, mean %.4f; cells on a thread: mean %.1f\n", least, sum_of_efficiency / machines,
              sum_of_cells / machines);
}

TEST(Shares, NoOtherSharesOfAGivenGridEndEarlier) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> numbers(0.5, 5.0);
  for (int i = 0; i < 200; ++i) {
    std::vector<cluster::HostSpeed> speeds;
    for (std::uint32_t h = 0; h < 3; ++h) speeds.push_back({numbers(random), h + 1});
    constexpr std::uint32_t cells = 17;
    const cluster::Shares shares =
        cluster::share_cells(cluster_of({host("a"), host("b"), host("c")}, Grid{cells, 1}), speeds);
    double ours = 0;
    for (std::size_t h = 0; h < 3; ++h) ours = std::max(ours, time_of(shares.cells[h], speeds[h]));
    for (std::uint32_t a = 1; a < cells - 1; ++a) {
      for (std::uint32_t b = 1; a + b < cells; ++b) {
        const double other =
            std::max({time_of(a, speeds[0]), time_of(b, speeds[1]), time_of(cells - a - b, speeds[2])});
        ASSERT_GE(other, ours * (1 - 1e-12)) << a << " " << b;
      }
    }
  }
}

TEST(Shares, VeryManyCells) {
  std::vector<cluster::ClusterHost> hosts;
  std::vector<cluster::HostSpeed> speeds;
  for (int h = 0; h < 256; ++h) {
    hosts.push_back(host("h" + std::to_string(h)));
    speeds.push_back({64.0 + h, 64});
  }
  const cluster::Shares shares = cluster::share_cells(cluster_of(hosts), speeds);
  EXPECT_EQ(shares.grid.count(), cell_count_max);  // the largest number of cells: one for each thread
  EXPECT_EQ(*std::ranges::min_element(shares.cells), 64U);
  hosts.resize(257, host("one more"));
  speeds.resize(257, {64, 64});
  EXPECT_LE(cluster::share_cells(cluster_of(hosts), speeds).grid.count(), cell_count_max);
}

TEST(Shares, ContradictionsAreErrorsInWords) {
  EXPECT_EQ(
      share_error(cluster_of({host("a", 3), host("b", 4)}, Grid{4, 2})),
      "c.toml:2:8: [machine]: grid: 4x2 is 8 cells, but the hosts have 7 (a: 3, b: 4): make the numbers agree, or "
      "write cells = \"auto\" for a host or grid = \"auto\"");
  EXPECT_EQ(share_error(cluster_of({host("a", 8), host("b")}, Grid{4, 2}), {{}, {1, 1}}),
            "c.toml:2:8: [machine]: grid: 4x2 is 8 cells, but the hosts need 8 (a: 8), and 1 for the one with cells = "
            "\"auto\": use a larger grid or fewer hosts");
  EXPECT_EQ(
      share_error(cluster_of({host("a"), host("b"), host("c")}, Grid{2, 1}), {{1, 1}, {1, 1}, {1, 1}}),
      "c.toml:2:8: [machine]: grid: 2x1 is 2 cells, but the hosts need 1 for each of the 3 with cells = \"auto\": "
      "use a larger grid or fewer hosts");
  EXPECT_EQ(share_error(cluster_of({host("a", 16384), host("b", 1)})),
            "c.toml: the hosts have 16385 cells (a: 16384, b: 1), but a machine has at most 16384: give them fewer");
  EXPECT_EQ(
      share_error(cluster_of({host("a"), host("b")}), {{1, 1}, {0, 1}}),
      "c.toml:0: [[host]] b: cells = \"auto\": 0 is not a speed: give the host a number of cells, or another speed");
}

TEST(CpuShares, ProcessesOfOneComputerGetTheirParts) {
  const std::vector<std::uint32_t> eight{0, 1, 2, 3, 4, 5, 6, 7};
  const auto shares =
      cluster::share_cpus({{"a", eight, ""}, {"b", eight, ""}, {"a", eight, "auto"}, {"a", eight, "2"}});
  EXPECT_EQ(shares[0].cpus, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_TRUE(shares[1].cpus.empty()) << "alone on b";
  EXPECT_EQ(shares[2].cpus, (std::vector<std::uint32_t>{2, 3, 4}));
  EXPECT_EQ(shares[3].cpus, (std::vector<std::uint32_t>{5, 6, 7}));
  EXPECT_TRUE(shares[3].alone);
}

TEST(CpuShares, MoreProcessesThanCoresShare) {
  const auto shares = cluster::share_cpus({{"a", {0, 1}, ""}, {"a", {0, 1}, ""}, {"a", {0, 1}, ""}});
  for (const cluster::CpuShare& share : shares) {
    EXPECT_TRUE(share.cpus.empty());
    EXPECT_FALSE(share.alone);
    Options options;
    cluster::apply_share(options, share);
    EXPECT_EQ(options.threads, 1U);
    EXPECT_FALSE(options.bind);
    EXPECT_EQ(options.poll_time, std::chrono::microseconds(20));
    options.threads = 2;
    cluster::apply_share(options, share);
    EXPECT_EQ(options.threads, 2U) << "the user's choice";
  }
}

TEST(CpuShares, WhoWantsMoreThreadsThanItsPartSharesAll) {
  const auto shares = cluster::share_cpus({{"a", {0, 1}, "2"}, {"a", {0, 1}, ""}});
  EXPECT_TRUE(shares[0].cpus.empty());
  EXPECT_FALSE(shares[1].alone);
}

TEST(CpuShares, SetsThatSomebodyChoseStay) {
  const auto shares = cluster::share_cpus({{"a", {0}, ""}, {"a", {1}, ""}});
  EXPECT_TRUE(shares[0].cpus.empty());
  EXPECT_TRUE(shares[0].alone);
  EXPECT_TRUE(shares[1].alone);
}

}  // namespace
}  // namespace aplib::launch
