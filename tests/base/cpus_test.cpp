// SPDX-License-Identifier: MIT
#include "base/cpus.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <thread>

#include "cgroup_tree.hpp"

namespace aplib {
namespace {

constexpr const char* mountinfo_v2 =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

constexpr const char* mountinfo_v1 =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:15 - cgroup cgroup rw,cpu,cpuacct\n";

class Quota : public testing::Test {
 protected:
  CgroupTree tree;
  std::optional<double> quota() { return cpu_quota(tree.root()); }
  /// Of a process in the group `own` of version 2, with these lines in the files of groups.
  std::optional<double> quota_v2(const std::string& own, const std::map<std::string, std::string>& limits) {
    tree.write("proc/self/mountinfo", mountinfo_v2).write("proc/self/cgroup", "0::" + own + "\n");
    for (const auto& [group, limit] : limits) tree.write("sys/fs/cgroup" + group + "/cpu.max", limit + "\n");
    return quota();
  }
};

TEST_F(Quota, NoneWithoutProcFiles) { EXPECT_EQ(quota(), std::nullopt); }

TEST_F(Quota, V2OfTheOwnGroup) {
  EXPECT_EQ(quota_v2("/user.slice/job.scope", {{"/user.slice/job.scope", "150000 100000"}}), 1.5);
}

TEST_F(Quota, V2MaxIsNoLimit) { EXPECT_EQ(quota_v2("/a", {{"/a", "max 100000"}}), std::nullopt); }

TEST_F(Quota, V2TheTightestOnTheWayUpCounts) {
  EXPECT_EQ(quota_v2("/a/b/c", {{"/a/b/c", "800000 100000"},
                                {"/a/b", "max 100000"},
                                {"/a", "200000 50000"},
                                {"/a/other", "1000 100000"}}),  // a sibling's limit does not count
            4.0);
}

TEST_F(Quota, V2InAContainerWithItsOwnNamespace) { EXPECT_EQ(quota_v2("/", {{"", "50000 100000"}}), 0.5); }

TEST_F(Quota, V1OfTheOwnGroupAndAbove) {
  tree.write("proc/self/mountinfo", mountinfo_v1);
  tree.write("proc/self/cgroup", "5:cpuset:/elsewhere\n4:cpu,cpuacct:/docker/abc\n0::/\n");
  const std::string cpu = "sys/fs/cgroup/cpu,cpuacct/";
  tree.write(cpu + "docker/abc/cpu.cfs_quota_us", "-1\n").write(cpu + "docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  tree.write(cpu + "docker/cpu.cfs_quota_us", "300000\n").write(cpu + "docker/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3.0);
  tree.write(cpu + "docker/abc/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(Quota, V1InAContainerThatSeesOnlyItsOwnPart) {
  // The mount shows /docker/abc at its top, while /proc/self/cgroup still has the host's path.
  tree.write("proc/self/mountinfo", "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro master:11 - cgroup cgroup rw,cpu\n");
  tree.write("proc/self/cgroup", "4:cpu:/docker/abc/inner\n");
  tree.write("sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "700000\n");
  tree.write("sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 7.0);
  tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n").write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2.0);
}

TEST_F(Quota, AGroupOutsideTheMountIsLookedUpAtTheMount) {
  EXPECT_EQ(quota_v2("/../sibling", {{"", "100000 100000"}}), 1.0);
}

TEST_F(Quota, BothVersionsMounted) {
  tree.write("proc/self/mountinfo",
             std::string(mountinfo_v1) + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  tree.write("proc/self/cgroup", "1:cpu,cpuacct:/a\n0::/b\n");
  tree.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n");
  tree.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  tree.write("sys/fs/cgroup/unified/b/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 3.0);
}

TEST_F(Quota, BlanksInMountPoints) {
  tree.write("proc/self/mountinfo", "31 23 0:28 / /mnt/my\\040groups rw - cgroup2 cgroup2 rw\n");
  tree.write("proc/self/cgroup", "0::/a\n").write("mnt/my groups/a/cpu.max", "600000 100000\n");
  EXPECT_EQ(quota(), 6.0);
}

TEST_F(Quota, NonsenseIsNoLimit) {
  tree.write("proc/self/mountinfo", std::string("\n- - -\n31 23 0:28 / /x rw - cgroup2\n") + mountinfo_v2);
  tree.write("proc/self/cgroup", "nonsense\n0::/a\n");
  for (const char* text : {"", "0 100000", "100000 0", "100000", "-5 100000", "many few", "99999999999999999999 1"}) {
    tree.write("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
}

TEST(Cpus, UsableOnesAreThoseThatAQuotaPaysFor) {
  EXPECT_EQ(usable_cpu_count(8, std::nullopt), 8U);
  EXPECT_EQ(usable_cpu_count(8, 16.0), 8U);
  EXPECT_EQ(usable_cpu_count(8, 2.0), 2U);
  EXPECT_EQ(usable_cpu_count(8, 2.01), 3U);
  EXPECT_EQ(usable_cpu_count(8, 0.1), 1U);
  EXPECT_EQ(usable_cpu_count(0, std::nullopt), 1U);
  EXPECT_EQ(usable_cpu_count(8, 1e300), 8U);
}

TEST(Cpus, AThreadIsBoundAndItsThreadsInheritTheMask) {
  const std::vector<unsigned> before = allowed_cpus();
  const unsigned last = before.back();
  std::vector<unsigned> bound, inherited;
  std::string warning;
  std::thread([&] {
    warning = bind_this_thread(last);
    bound = allowed_cpus();
    std::thread([&] { inherited = allowed_cpus(); }).join();
  }).join();
  EXPECT_EQ(warning, "");
  EXPECT_EQ(bound, std::vector<unsigned>{last});
  EXPECT_EQ(inherited, std::vector<unsigned>{last});
  EXPECT_EQ(allowed_cpus(), before) << "the caller keeps its own mask";
}

TEST(Cpus, AFailureToBindIsAWarning) {
  std::string warning;
  std::thread([&] { warning = bind_this_thread(100'000); }).join();
  EXPECT_EQ(
      warning,
      "cannot bind a thread to core 100000: Invalid argument (22); it runs unbound, bind=off avoids this message");
}

}  // namespace
}  // namespace aplib
