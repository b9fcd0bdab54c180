// SPDX-License-Identifier: MIT
#include "kernel/placement.hpp"

#include <gtest/gtest.h>

#include <sched.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "cgroup_tree.hpp"

namespace aplib {
namespace {

using namespace std::chrono_literals;

Options options_of(Grid cells, std::uint32_t threads = Options::threads_auto) {
  Options options;
  options.cells = cells;
  options.threads = threads;
  return options;
}

/// The plan of a thread that may run only on these CPUs, without a quota.
Placement plan_on(std::vector<unsigned> cpus, const Options& options) {
  Placement plan;
  std::thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned cpu : cpus) CPU_SET(cpu, &set);
    EXPECT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    const CgroupTree nothing;
    plan = plan_placement(options, ProgramThreads::none, nothing.root());
  }).join();
  return plan;
}

/// All allowed CPUs, without a quota.
Placement plan_of(const Options& options) { return plan_on(allowed_cpus(), options); }

TEST(Placement, OneCpuCarriesAllCellsUnbound) {
  const Placement plan = plan_on({allowed_cpus().front()}, options_of({8, 1}));
  EXPECT_EQ(plan.processors, 1U);
  EXPECT_EQ(plan.usable_cores, 1U);
  EXPECT_FALSE(plan.oversubscribed);
  EXPECT_TRUE(plan.core_of_processor.empty());
}

TEST(Placement, ByDefaultAsManyProcessorsAsCellsOrCores) {
  const auto cpus = static_cast<std::uint32_t>(allowed_cpus().size());
  EXPECT_EQ(plan_of(options_of({1, 1})).processors, 1U);
  EXPECT_EQ(plan_of(options_of({128, 128})).processors, cpus);
  EXPECT_EQ(plan_of(options_of({128, 128})).usable_cores, cpus);
  EXPECT_FALSE(plan_of(options_of({128, 128})).oversubscribed);
}

TEST(Placement, ThreadsAreNeverMoreThanCells) {
  const auto cpus = static_cast<std::uint32_t>(allowed_cpus().size());
  const Placement few = plan_of(options_of({2, 1}, 100));
  EXPECT_EQ(few.processors, 2U);
  const Placement many = plan_of(options_of({128, 1}, cpus + 1));
  EXPECT_EQ(many.processors, std::min(128U, cpus + 1));
  EXPECT_EQ(many.oversubscribed, many.processors > cpus);
}

TEST(Placement, PerCellGivesEachItsOwn) {
  const Placement plan = plan_on({allowed_cpus().front()}, options_of({3, 2}, Options::threads_per_cell));
  EXPECT_EQ(plan.processors, 6U);
  EXPECT_TRUE(plan.oversubscribed);
  EXPECT_TRUE(plan.core_of_processor.empty());
}

TEST(Placement, EnoughCoresAreBoundOneEach) {
  const std::vector<unsigned> cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "needs two cores";
  const Placement plan = plan_of(options_of({static_cast<std::uint32_t>(cpus.size()), 1}));
  std::vector<unsigned> sorted = plan.core_of_processor;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, cpus);

  const std::vector<unsigned> part{cpus[0], cpus[cpus.size() - 1]};
  const Placement half = plan_on(part, options_of({64, 1}));
  sorted = half.core_of_processor;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, part);
}

TEST(Placement, BindOffBindsNothing) {
  Options options = options_of({8, 1});
  options.bind = false;
  EXPECT_TRUE(plan_of(options).core_of_processor.empty());
}

// A program's threads would all run on the one core of their rank.
TEST(Placement, WhereProgramsMakeThreadsFreeCoresAreForThem) {
  const Options options = options_of({4, 1});
  const Placement spare{.processors = 4, .core_of_processor = {}, .usable_cores = 8};
  EXPECT_TRUE(are_bound(options, spare, ProgramThreads::none));
  EXPECT_FALSE(are_bound(options, spare, ProgramThreads::some));
  const Placement full{.processors = 4, .core_of_processor = {}, .usable_cores = 4};
  EXPECT_TRUE(are_bound(options, full, ProgramThreads::some));
}

TEST(Placement, AQuotaLimitsProcessorsAndForbidsBinding) {
  if (allowed_cpus().size() < 2) GTEST_SKIP() << "needs two cores";
  CgroupTree tree;
  tree.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  tree.write("proc/self/cgroup", "0::/a\n").write("sys/fs/cgroup/a/cpu.max", "90000 100000\n");
  const Placement plan = plan_placement(options_of({4, 1}), ProgramThreads::none, tree.root());
  EXPECT_EQ(plan.usable_cores, 1U);
  EXPECT_EQ(plan.processors, 1U);
  const Placement forced = plan_placement(options_of({4, 1}, 2), ProgramThreads::none, tree.root());
  EXPECT_EQ(forced.processors, 2U);
  EXPECT_TRUE(forced.oversubscribed);
  EXPECT_TRUE(forced.core_of_processor.empty());
}

TEST(Placement, OptionsAssignedOutOfRangeAreRefused) {
  try {
    (void)plan_placement(options_of({0, 4}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::bad_option);
    EXPECT_STREQ(
        error.what(),
        "option cells: \"0x4\" is not a grid: use NXxNY with at least 1 cell and at most 16384 in all, for example "
        "4x2 or 8");
  }
}

TEST(Placement, PollingFollowsTheCores) {
  Options options;
  Placement own, limited;
  limited.limited = true;
  EXPECT_EQ(poll_time(options, own), 50us);
  EXPECT_EQ(poll_time(options, limited), 20us);
  options.poll_time = 1ms;
  EXPECT_EQ(poll_time(options, limited), 1ms);
}

TEST(Placement, CellsGoInContiguousBlocksOfNearlyEqualSize) {
  for (std::uint32_t cells : {1U, 2U, 3U, 7U, 8U, 64U, 1000U, 16384U}) {
    for (std::uint32_t processors : {1U, 2U, 3U, 7U, 8U, 63U, 4096U}) {
      if (processors > cells) continue;
      SCOPED_TRACE(testing::Message() << cells << " cells on " << processors);
      for (std::uint32_t p = 0; p < processors; ++p) {
        const std::uint32_t first = first_cell_of_processor(p, cells, processors);
        const std::uint32_t next = first_cell_of_processor(p + 1, cells, processors);
        ASSERT_GE(next - first, cells / processors);
        ASSERT_LE(next - first, (cells + processors - 1) / processors);
        ASSERT_EQ(processor_of_cell(first, cells, processors), p);
        ASSERT_EQ(processor_of_cell(next - 1, cells, processors), p);
      }
      EXPECT_EQ(first_cell_of_processor(0, cells, processors), 0U);
      EXPECT_EQ(first_cell_of_processor(processors, cells, processors), cells);
    }
  }
}

}  // namespace
}  // namespace aplib
