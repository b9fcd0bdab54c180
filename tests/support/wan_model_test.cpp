// SPDX-License-Identifier: MIT
// The model of an internet and its orders, with times that the test chooses.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "wan/network.hpp"
#include "wan/orders.hpp"
#include "wan/prefix.hpp"

namespace aplib::wan {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t packet_bytes = 1000;

/// A packet of version 4 to 10.0.0.`host`, with a number in it.
Packet packet_to(unsigned host, std::uint64_t number = 0, std::size_t bytes = packet_bytes) {
  Packet packet(bytes);
  packet[0] = std::byte{0x45};
  packet[16] = std::byte{10};
  packet[19] = static_cast<std::byte>(host);
  for (std::size_t i = 0; i < 8; ++i) packet[20 + i] = static_cast<std::byte>(number >> 8 * i);
  return packet;
}

std::uint64_t number_of(const Packet& packet) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) number |= static_cast<std::uint64_t>(packet[20 + i]) << 8 * i;
  return number;
}

struct Got {
  std::size_t to;
  std::uint64_t number;
  Time time;
  bool operator==(const Got&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Got& got) {
  return out << "packet " << got.number << " at site " << got.to << " after " << got.time.count() << " ns";
}

/// Sites a, b and c with the addresses 10.0.0.1 to 10.0.0.3.
class WanModelTest : public testing::Test {
 protected:
  WanModelTest() {
    order("site a /a eth0 10.0.0.1 fd00::1");
    order("site b /b eth0 10.0.0.2 fd00::2");
    order("site c /c eth0 10.0.0.3");
  }

  /// Carries out an order that must be right.
  void order(const std::string& line, Time now = 0ms) { EXPECT_EQ(orders_.carry_out(line, now), "ok\n") << line; }

  void enter(std::size_t from, unsigned host, std::uint64_t number, Time now, std::size_t bytes = packet_bytes) {
    network_.enter(from, packet_to(host, number, bytes), now);
  }

  /// What arrives until then, each at the first moment when it can be had.
  std::vector<Got> run_until(Time end) {
    std::vector<Got> all;
    for (auto next = network_.next(); next && *next <= end; next = network_.next()) {
      while (const auto arrival = network_.take(*next)) {
        all.push_back({arrival->to, number_of(arrival->packet), *next});
      }
    }
    return all;
  }

  /// Numbers of the packets out of `count`, sent from a to b at once, that arrive.
  std::vector<std::uint64_t> survivors(unsigned count) {
    for (unsigned i = 0; i < count; ++i) enter(0, 2, i, 0ms);
    std::vector<std::uint64_t> numbers;
    for (const Got& got : run_until(1h)) numbers.push_back(got.number);
    return numbers;
  }

  [[nodiscard]] const Counters& counters(std::size_t from, std::size_t to) { return network_.path(from, to).counters; }

  void make_device(const std::string& name_space, const std::string& device) {
    if (!why_no_device_.empty()) throw std::runtime_error(why_no_device_);
    devices_.push_back(name_space + ' ' + device);
  }

  std::vector<std::string> devices_;
  std::string why_no_device_;
  Network network_;
  Orders orders_{network_, [this](const auto& name_space, const auto& device) { make_device(name_space, device); }};
};

TEST_F(WanModelTest, ANewPairTakesNoTime) {
  enter(0, 2, 7, 3ms);
  EXPECT_EQ(run_until(3ms), (std::vector<Got>{{1, 7, 3ms}}));
  EXPECT_EQ(network_.next(), std::nullopt);
  EXPECT_EQ(counters(0, 1).packets, 1U);
  EXPECT_EQ(counters(0, 1).bytes, packet_bytes);
  EXPECT_EQ(counters(1, 0).packets, 0U);
}

TEST_F(WanModelTest, EachDirectionHasItsDelay) {
  order("pair a b delay 10ms");
  order("pair b a delay 0.25s");
  enter(0, 2, 1, 5ms);
  enter(1, 1, 2, 5ms);
  EXPECT_FALSE(network_.take(14'999'999ns).has_value());
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 1, 15ms}, {0, 2, 255ms}}));
}

TEST_F(WanModelTest, ARateSpacesPackets) {
  order("pair a b delay 10ms rate 8Mb/s");  // 1000 B in 1 ms
  for (unsigned i = 0; i < 3; ++i) enter(0, 2, i, 0ms);
  enter(0, 3, 9, 0ms);  // another pair does not wait
  enter(0, 2, 3, 50ms, 500);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{2, 9, 0ms}, {1, 0, 11ms}, {1, 1, 12ms}, {1, 2, 13ms}, {1, 3, 60'500us}}));
}

TEST_F(WanModelTest, AFullQueueDropsTheNewest) {
  order("pair a b rate 8Mb/s queue 3kB");
  EXPECT_EQ(survivors(10), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(counters(0, 1).queue, 7U);
  enter(0, 2, 20, 2ms);  // two have gone, one is going
  enter(0, 2, 21, 2ms);
  enter(0, 2, 22, 2ms);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 20, 4ms}, {1, 21, 5ms}}));
}

TEST_F(WanModelTest, APacketLargerThanTheQueuePassesAlone) {
  order("pair a b rate 8Mb/s queue 0B");
  EXPECT_EQ(survivors(2), (std::vector<std::uint64_t>{0}));
}

TEST_F(WanModelTest, WithoutAQueueSizeFiftyMillisecondsWait) {
  order("pair a b rate 80Mb/s");
  EXPECT_EQ(survivors(1000).size(), 500U);
  order("pair a b rate 8kb/s", 1h);
  for (unsigned i = 0; i < 100; ++i) enter(0, 2, i, 1h);
  EXPECT_EQ(run_until(2h).size(), 64U);
}

TEST_F(WanModelTest, ASitesAccessIsSharedByItsPairs) {
  order("access a up 8Mb/s");
  order("access c down 4Mb/s");
  enter(0, 2, 1, 0ms);
  enter(0, 3, 2, 0ms);
  enter(1, 3, 3, 0ms);
  // c takes 2 ms for each: that of b until 2 ms, that of a, which left at 2 ms, until 4 ms.
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 1, 1ms}, {2, 3, 2ms}, {2, 2, 4ms}}));
  order("access c queue 2kB", 1s);
  order("pair b c delay 0ms", 1s);
  for (unsigned i = 0; i < 5; ++i) enter(1, 3, i, 1s);
  EXPECT_EQ(run_until(2s).size(), 2U);
  EXPECT_EQ(counters(1, 2).queue, 3U);
}

TEST_F(WanModelTest, PacketsOfAPairKeepTheirOrderWhenItsDelayShrinks) {
  order("pair a b delay 100ms");
  enter(0, 2, 1, 0ms);
  order("pair a b delay 1ms", 10ms);
  enter(0, 2, 2, 10ms);
  enter(0, 2, 3, 200ms);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 1, 100ms}, {1, 2, 100ms}, {1, 3, 201ms}}));
}

TEST_F(WanModelTest, PacketsOfAPairKeepTheirOrderWhenItsRateGrows) {
  order("pair a b rate 8Mb/s");
  enter(0, 2, 1, 0ms);
  enter(0, 2, 2, 0ms);
  order("pair a b rate none");
  enter(0, 2, 3, 0ms);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 1, 1ms}, {1, 2, 2ms}, {1, 3, 2ms}}));
}

TEST_F(WanModelTest, ASeedRepeatsItsLosses) {
  order("pair a b loss 0.25 seed 7");
  const auto first = survivors(10'000);
  EXPECT_EQ(first.size(), counters(0, 1).packets);
  EXPECT_EQ(first.size() + counters(0, 1).loss, 10'000U);
  EXPECT_GT(first.size(), 7'300U);
  EXPECT_LT(first.size(), 7'700U);
  order("pair a b seed 7");
  EXPECT_EQ(survivors(10'000), first);
  order("pair a b seed 8");
  EXPECT_NE(survivors(10'000), first);
  order("pair a b loss 1");
  EXPECT_EQ(survivors(100).size(), 0U);
  order("pair a b loss 0");
  EXPECT_EQ(survivors(100).size(), 100U);
}

TEST_F(WanModelTest, ACutDropsWhatIsUnderWayAndWhatComes) {
  order("pair a b delay 10ms");
  enter(0, 2, 1, 0ms);
  enter(0, 2, 2, 1ms);
  order("cut a b", 2ms);
  enter(0, 2, 3, 3ms);
  enter(1, 1, 4, 3ms);  // the way back is whole
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{0, 4, 3ms}}));
  EXPECT_EQ(counters(0, 1).cut, 3U);
  order("join a b", 1s);
  enter(0, 2, 5, 1s);
  EXPECT_EQ(run_until(2s), (std::vector<Got>{{1, 5, 1010ms}}));
}

TEST_F(WanModelTest, WhatComesAfterACutKeepsItsOwnTime) {
  order("pair a b delay 10ms");
  enter(0, 2, 1, 0ms);
  order("cut a b", 2ms);
  order("join a b", 2ms);
  enter(0, 2, 2, 5ms);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 2, 15ms}}));
}

TEST_F(WanModelTest, ACutEndsByItselfAfterItsTime) {
  order("cut a b 20ms", 5ms);
  enter(0, 2, 1, 24'999us);
  enter(0, 2, 2, 25ms);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 2, 25ms}}));
}

TEST_F(WanModelTest, PacketsToNobodyAreCounted) {
  enter(0, 9, 1, 0ms);
  network_.enter(0, Packet(3), 0ms);
  network_.enter(0, {}, 0ms);
  Packet multicast(40);
  multicast[0] = std::byte{0x60};
  multicast[24] = std::byte{0xff};
  network_.enter(0, multicast, 0ms);
  EXPECT_EQ(network_.next(), std::nullopt);
  EXPECT_EQ(network_.nowhere(0), 3U);
  EXPECT_EQ(network_.nowhere(1), 0U);
}

TEST_F(WanModelTest, PacketsOfVersion6FindTheirSite) {
  Packet packet(packet_bytes);
  packet[0] = std::byte{0x60};
  packet[24] = std::byte{0xfd};
  packet[39] = std::byte{2};
  network_.enter(0, packet, 0ms);
  const auto arrival = network_.take(0ms);
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->to, 1U);
  EXPECT_EQ(arrival->packet, packet);
}

TEST_F(WanModelTest, AHeaderOfTheDeviceDoesNotCount) {
  Network network(10);
  Orders orders(network, [](const std::string&, const std::string&) {});
  for (const char* line : {"site a /a eth0 10.0.0.1", "site b /b eth0 10.0.0.2", "pair a b rate 8Mb/s"}) {
    EXPECT_EQ(orders.carry_out(line, 0ms), "ok\n");
  }
  Packet packet = packet_to(2);
  packet.insert(packet.begin(), 10, std::byte{});
  network.enter(0, packet, 0ms);
  EXPECT_EQ(network.next(), Time(1ms));
  EXPECT_EQ(network.take(1ms)->packet, packet);
  EXPECT_EQ(network.path(0, 1).counters.bytes, packet_bytes);
  network.enter(0, Packet(9), 1ms);
  EXPECT_EQ(network.next(), std::nullopt);
}

TEST_F(WanModelTest, CountersAreALineForEachPairAndSite) {
  order("cut c a");
  enter(0, 2, 1, 0ms);
  enter(2, 1, 1, 0ms);
  enter(1, 77, 1, 0ms);
  run_until(1s);
  EXPECT_EQ(orders_.carry_out("count", 1s),
            "pair a b packets 1 bytes 1000 queue 0 loss 0 cut 0\npair a c packets 0 bytes 0 queue 0 loss 0 cut 0\n"
            "site a nowhere 0\n"
            "pair b a packets 0 bytes 0 queue 0 loss 0 cut 0\npair b c packets 0 bytes 0 queue 0 loss 0 cut 0\n"
            "site b nowhere 1\n"
            "pair c a packets 0 bytes 0 queue 0 loss 0 cut 1\npair c b packets 0 bytes 0 queue 0 loss 0 cut 0\n"
            "site c nowhere 0\nok\n");
}

TEST_F(WanModelTest, ABadOrderSaysWhatToWriteAndChangesNothing) {
  order("pair a b delay 10ms rate 8Mb/s loss 0");
  const std::string pair = "write pair FROM TO [delay TIME] [rate RATE] [queue SIZE] [loss SHARE] [seed NUMBER]";
  const std::vector<std::pair<std::string, std::string>> bad{
      {"pear a b", R"(there is no order "pear": use site, access, pair, cut, join or count)"},
      {"pair a", "words are missing: " + pair},
      {"pair a z delay 1ms", R"(there is no site "z": use one of a, b, c)"},
      {"pair a a delay 1ms", "a pair is of two sites, not of one: name another"},
      {"pair a b delay 1ms rate", R"("rate" has no value: )" + pair},
      {"pair a b delay 1ms colour red", R"(there is no "colour" here: )" + pair},
      {"pair a b delay 1ms rate 8", R"("8" is no rate: use none, or at least 1 of b/s, kb/s, Mb/s or Gb/s, as in 1.5)"},
      {"pair a b delay 1ms rate 0Mb/s", R"("0Mb/s" is no rate: use none, )"},
      {"pair a b delay 1ms rate infMb/s", R"("infMb/s" is no rate: use none, )"},
      {"pair a b rate 1Mb/s delay -1ms", R"("-1ms" is no time up to a day: use a number of ns, us, ms or s, )"},
      {"pair a b rate 1Mb/s delay 25h", R"("25h" is no time up to a day: )"},
      {"pair a b rate 1Mb/s delay 86401s", R"("86401s" is no time up to a day: )"},
      {"pair a b rate 1Mb/s queue 5", R"("5" is no size: use auto, or a number of B, kB, MB or GB, as in 64kB)"},
      {"pair a b rate 1Mb/s loss 1.5", R"("1.5" is no share: use 0 to 1, as in 0.01)"},
      {"pair a b rate 1Mb/s seed x", R"("x" is no seed: use a whole number below 2^64)"},
      {"access a up 1Mb/s sideways 1Mb/s", R"(there is no "sideways" here: write access NAME [up RATE] [down RATE] )"},
      {"cut a b 1s 2s", R"("2s" is too much: write cut FROM TO [TIME])"},
      {"cut a b soon", R"("soon" is no time up to a day: )"},
      {"join a", "words are missing: write join FROM TO"},
      {"count all", R"("all" is too much: write count)"},
      {"site a /d eth0 10.0.0.9", "there is a site of that name already: choose another name"},
      {"site d /d eth0", "words are missing: write site NAME NAMESPACE DEVICE ADDRESS[/BITS]..."},
      {"site d /d eth0 10.0.0.999", R"("10.0.0.999" is no address: use one as 10.91.0.1, 10.91.1.0/24 or fd91::1)"},
      {"site d /d eth0 10.0.0.0/33", R"("10.0.0.0/33" is no address: )"},
      {"site d /d eth0 10.0.0.4 10.0.0.0/24", R"("10.0.0.0/24" is an address of site "a": choose another)"},
  };
  int line = 4;
  for (const auto& [order, why] : bad) {
    const std::string said = "error: line " + std::to_string(++line) + ": \"" + order + "\": " + why;
    const std::string answer = orders_.carry_out(order, 0ms);
    EXPECT_EQ(answer.substr(0, said.size()), said);
    EXPECT_EQ(answer.find('\n'), answer.size() - 1);
  }
  EXPECT_EQ(devices_, (std::vector<std::string>{"/a eth0", "/b eth0", "/c eth0"}));
  EXPECT_EQ(network_.sites(), 3U);
  enter(0, 2, 1, 0ms);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 1, 11ms}}));
}

TEST_F(WanModelTest, ASiteWhoseDeviceCannotBeMadeIsNone) {
  why_no_device_ = "cannot: do";
  EXPECT_EQ(orders_.carry_out("site d /d eth0 10.0.0.4", 0ms),
            "error: line 4: \"site d /d eth0 10.0.0.4\": cannot: do\n");
  why_no_device_.clear();
  order("site d /d eth0 10.0.0.4");
  enter(3, 1, 1, 0ms);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{0, 1, 0ms}}));
}

TEST_F(WanModelTest, BlankLinesAndCommentsDoNothing) {
  for (const char* line : {"", " \t", "# pair a b"}) order(line);
  order("\tpair  a b   delay 1ms \r");
  enter(0, 2, 1, 0ms);
  EXPECT_EQ(run_until(1s), (std::vector<Got>{{1, 1, 1ms}}));
}

TEST(WanPrefixTest, HoldsTheAddressesThatBeginAlike) {
  const auto prefix = Prefix::parse("10.91.4.0/22");
  ASSERT_TRUE(prefix);
  const auto holds = [&](unsigned third) {
    const std::vector bytes{std::byte{10}, std::byte{91}, static_cast<std::byte>(third), std::byte{200}};
    return prefix->holds(bytes);
  };
  EXPECT_FALSE(holds(3));
  EXPECT_TRUE(holds(4));
  EXPECT_TRUE(holds(7));
  EXPECT_FALSE(holds(8));
  EXPECT_TRUE(Prefix::parse("0.0.0.0/0")->overlaps(*prefix));
  EXPECT_FALSE(Prefix::parse("::/0")->overlaps(*prefix));
  for (const char* text : {"", "a", "10.0.0", "10.0.0.1/", "10.0.0.1/x", "10.0.0.1/-1", "fd00::1/129"}) {
    EXPECT_FALSE(Prefix::parse(text)) << text;
  }
}

}  // namespace
}  // namespace aplib::wan
