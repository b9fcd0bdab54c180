// SPDX-License-Identifier: MIT
// Which way a pair takes, by what its processes have found.
#include "launch/coordinator/ways.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace aplib::launch::coordinator {
namespace {

using Kind = comm::Way::Kind;

const std::vector<std::string> relays{"aprun", "login1", "login2"};

bool always(std::uint32_t, std::uint32_t) { return true; }

/// "0-1: calls", as the first process sees it.
std::vector<std::string> texts(const Ways& ways) {
  std::vector<std::string> found;
  for (std::uint32_t self = 0; self < ways.of.size(); ++self) {
    for (const wire::PlannedWay& way : ways.of[self]) {
      const char* const kind = way.kind == Kind::calls    ? "calls"
                               : way.kind == Kind::called ? "called"
                               : way.kind == Kind::relay  ? "relay"
                                                          : "direct";
      found.push_back(fmt::format("{}-{}: {}{}{}{}{}", self, way.process, kind, way.relay.empty() ? "" : " ", way.relay,
                                  way.place.empty() ? "" : " at ", way.place));
    }
  }
  return found;
}

TEST(Ways, DirectOnesAreNotMentioned) {
  const Ways ways = choose_ways({{{1}, {}}, {{0}, {}}}, {}, always, ForcedWay::none);
  EXPECT_EQ(texts(ways), std::vector<std::string>());
  EXPECT_FALSE(ways.lost);
}

TEST(Ways, WhoReachesTheOtherCalls) {
  EXPECT_EQ(texts(choose_ways({{{1}, {}}, {{}, {}}}, {}, always, ForcedWay::none)),
            (std::vector<std::string>{"0-1: calls", "1-0: called"}));
  EXPECT_EQ(texts(choose_ways({{{}, {}}, {{0}, {}}}, {}, always, ForcedWay::none)),
            (std::vector<std::string>{"0-1: called", "1-0: calls"}));
}

TEST(Ways, OneRelayIsBetterThanTwo) {
  const Ways ways = choose_ways({{{}, {"", "a:1", ""}}, {{}, {"l:0", "b:1", "b:2"}}}, relays, always, ForcedWay::none);
  EXPECT_EQ(texts(ways), (std::vector<std::string>{"0-1: relay login1 at a:1", "1-0: relay login1 at b:1"}));
  EXPECT_TRUE(ways.chains.empty());
}

TEST(Ways, TwoRelaysAreJoinedByTheLaunchers) {
  const Ways ways = choose_ways({{{}, {"l:0", "", ""}}, {{}, {"", "a:1", ""}}, {{}, {"", "", "b:2"}}}, relays, always,
                                ForcedWay::none);
  EXPECT_EQ(texts(ways),
            (std::vector<std::string>{"0-1: relay aprun, login1 at l:0", "0-2: relay aprun, login2 at l:0",
                                      "1-0: relay aprun, login1 at a:1", "1-2: relay login1, login2 at a:1",
                                      "2-0: relay aprun, login2 at b:2", "2-1: relay login1, login2 at b:2"}));
  ASSERT_EQ(ways.chains.size(), 3U);
  EXPECT_EQ(ways.chains[2].first_relay, 1U);
  EXPECT_EQ(ways.chains[2].second_relay, 2U);
  EXPECT_EQ(ways.chains[2].first, 1U);
  EXPECT_EQ(ways.chains[2].second, 2U);
}

TEST(Ways, APairWithoutAnyIsNamed) {
  const Ways ways =
      choose_ways({{{1}, {"", "", ""}}, {{0}, {"", "", ""}}, {{}, {"", "a:1", ""}}}, relays, always, ForcedWay::none);
  ASSERT_TRUE(ways.lost);
  EXPECT_EQ(*ways.lost, std::pair(0U, 2U));
}

TEST(Ways, PairsThatWereNotTriedAreDirect) {
  const Ways ways = choose_ways(
      {{{}, {}}, {{}, {}}}, {}, [](std::uint32_t, std::uint32_t) { return false; }, ForcedWay::none);
  EXPECT_EQ(texts(ways), std::vector<std::string>());
  EXPECT_FALSE(ways.lost);
}

TEST(Ways, TestsMayForceThem) {
  const std::vector<wire::Probed> all{{{1}, {"l:0"}}, {{0}, {"l:0"}}};
  EXPECT_EQ(texts(choose_ways(all, {"aprun"}, always, ForcedWay::reverse)),
            (std::vector<std::string>{"0-1: calls", "1-0: called"}));
  EXPECT_EQ(texts(choose_ways(all, {"aprun"}, always, ForcedWay::relay)),
            (std::vector<std::string>{"0-1: relay aprun at l:0", "1-0: relay aprun at l:0"}));
}

TEST(Ways, HostsOfOneRoomHaveLikeAddresses) {
  EXPECT_TRUE(are_near("10.1.0.1", "10.1.255.1"));
  EXPECT_FALSE(are_near("10.1.0.1", "10.2.0.1"));
  EXPECT_TRUE(are_near("fd91:1:2::1", "fd91:1:2:7::9"));
  EXPECT_FALSE(are_near("fd91:1:2::1", "fd91:1:3::1"));
  EXPECT_TRUE(are_near("fe80::1%eth0", "fe80::2%eth1"));
  EXPECT_FALSE(are_near("10.1.0.1", "fd91::1"));
  EXPECT_FALSE(are_near("", "10.1.0.1"));
}

}  // namespace
}  // namespace aplib::launch::coordinator
