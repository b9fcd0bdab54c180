// SPDX-License-Identifier: MIT
#include "launch/node/data_port.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/mixed/mixed_module.hpp"
#include "loop/loop_net.hpp"

namespace aplib::launch {
namespace {

TEST(Routes, AreDescribedInSmallMachines) {
  comm::loop::LoopNet net(3);
  const auto module = net.module(1);
  const auto routes = node::routes_of(*module, 1, 3, {});
  ASSERT_EQ(routes.size(), 2U);
  EXPECT_EQ(routes[0].module, "loop");
  EXPECT_EQ(routes[0].peers, "0");
  EXPECT_EQ(routes[0].text, "loop, from process 1 to process 0");
  EXPECT_EQ(routes[1].peers, "2");
}

TEST(Routes, AreGatheredByModuleInLargeOnes) {
  constexpr std::uint32_t processes = 100;
  comm::loop::LoopNet near(processes);
  comm::loop::LoopNet far(processes);
  std::vector<std::unique_ptr<comm::Module>> modules;
  modules.push_back(near.module(0));
  modules.push_back(far.module(0));
  std::vector<std::uint32_t> in_charge(processes, 1);
  in_charge[1] = in_charge[2] = 0;
  const comm::mixed::MixedModule mixed(0, std::move(modules), in_charge);
  const auto routes = node::routes_of(mixed, 0, processes, {});
  ASSERT_EQ(routes.size(), 1U);  // both are called loop
  EXPECT_EQ(routes[0].peers, "1-99");
  EXPECT_EQ(routes[0].text, "");
}

TEST(Routes, AreGatheredByWayAsWell) {
  constexpr std::uint32_t processes = 9;
  comm::loop::LoopNet net(processes);
  const auto module = net.module(0);
  using Kind = comm::Way::Kind;
  const std::vector<wire::PlannedWay> ways{{3, Kind::calls, {}, {}},
                                           {4, Kind::called, {}, {}},
                                           {5, Kind::relay, "10.0.0.1:1", "login1"},
                                           {7, Kind::relay, "10.0.0.1:1", "login1"}};
  std::vector<std::string> found;
  for (const wire::Route& route : node::routes_of(*module, 0, processes, ways))
    found.push_back(route.module + ": " + route.peers);
  EXPECT_EQ(found, (std::vector<std::string>{"loop: 1-2, 6, 8", "loop reverse: 3-4", "loop by relay login1: 5, 7"}));
}

}  // namespace
}  // namespace aplib::launch
