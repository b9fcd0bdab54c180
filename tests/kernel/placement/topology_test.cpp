// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <link.h>
#include <sys/single_threaded.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/placement.hpp"

namespace aplib {
namespace {

using Cores = std::vector<unsigned>;

Cores all(unsigned count) {
  Cores cores(count);
  std::iota(cores.begin(), cores.end(), 0U);
  return cores;
}

// Two packages of 8 cores, 4 cores to an L3. Synthetic topologies number cores in the order of the tree.
const char* const two_packages = "package:2 l3:2 core:4 pu:1";

TEST(Topology, APartIsTakenAroundTheCallerFromOneCache) {
  const Topology topology(two_packages);
  EXPECT_EQ(topology.choose_cores(all(16), 2, 0), (Cores{0, 1}));
  EXPECT_EQ(topology.choose_cores(all(16), 2, 5), (Cores{5, 6}));
  EXPECT_EQ(topology.choose_cores(all(16), 2, 7), (Cores{6, 7})) << "not 7 and 8, which are on two packages";
  EXPECT_EQ(topology.choose_cores(all(16), 4, 14), (Cores{12, 13, 14, 15}));
  EXPECT_EQ(topology.choose_cores(all(16), 8, 11), (Cores{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(topology.choose_cores(all(16), 16, 11), all(16));
}

TEST(Topology, WhatIsNotAllowedIsLeftOut) {
  const Topology topology(two_packages);
  EXPECT_EQ(topology.choose_cores(Cores{1, 3, 8, 9, 10}, 2, 3), (Cores{1, 3}));
  EXPECT_EQ(topology.choose_cores(Cores{1, 3, 8, 9, 10}, 3, 9), (Cores{8, 9, 10}));
  EXPECT_EQ(topology.choose_cores(Cores{1, 3, 8, 9, 10}, 3, 1), (Cores{1, 3, 8}));
  EXPECT_EQ(topology.choose_cores(Cores{1, 3, 8, 9, 10}, 2, 6), (Cores{1, 3})) << "the caller has moved away meanwhile";
}

TEST(Topology, EachGetsAPhysicalCoreWhileTheySuffice) {
  const Topology topology("package:1 l3:1 core:4 pu:2");  // cores have the threads 0 1, 2 3, 4 5, 6 7
  EXPECT_EQ(topology.choose_cores(all(8), 4, 3), (Cores{0, 2, 4, 6}));
  EXPECT_EQ(topology.choose_cores(all(8), 2, 3), (Cores{2, 4}));
  EXPECT_EQ(topology.choose_cores(all(8), 6, 0), (Cores{0, 1, 2, 3, 4, 6})) << "siblings stay neighbours";
  EXPECT_EQ(topology.choose_cores(all(8), 8, 5), all(8));
  EXPECT_EQ(topology.choose_cores(Cores{1, 2, 3, 7}, 3, 7), (Cores{1, 2, 7}));
}

TEST(Topology, CoresItDoesNotKnowAreUsedInTheKernelsOrder) {
  const Topology topology("core:2 pu:1");
  EXPECT_EQ(topology.choose_cores(Cores{0, 1, 40, 41}, 3, 0), (Cores{0, 1, 40}));
}

// They bring the libraries of X11 and others, which take longer to load than all else takes.
TEST(Topology, OfThisComputerLoadsNoPlugInsAndLeavesTheEnvironment) {
  const bool may_change_environment = __libc_single_threaded != 0;
  const Topology topology;
  std::string plug_ins;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (std::string_view(info->dlpi_name).find("/hwloc/") != std::string_view::npos)
          *static_cast<std::string*>(found) += info->dlpi_name;
        return 0;
      },
      &plug_ins);
  EXPECT_TRUE(plug_ins.empty() || !may_change_environment) << plug_ins;
  EXPECT_EQ(std::getenv("HWLOC_PLUGINS_PATH"), nullptr);
}

TEST(Topology, OfThisComputerKnowsWhatTheKernelAllows) {
  const Cores allowed = allowed_cpus();
  const Topology topology;
  for (std::uint32_t count = 1; count <= allowed.size(); ++count) {
    Cores chosen = topology.choose_cores(allowed, count, allowed.front());
    std::ranges::sort(chosen);
    EXPECT_EQ(chosen.size(), count);
    EXPECT_EQ(std::ranges::adjacent_find(chosen), chosen.end()) << "no core twice";
    EXPECT_TRUE(std::ranges::includes(allowed, chosen));
  }
}

}  // namespace
}  // namespace aplib
