// SPDX-License-Identifier: MIT
// The module rdma beyond the promises of modules: its kind, its keys, strangers.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "checks.hpp"
#include "comm/kind.hpp"
#include "comm/rdma/link.hpp"
#include "rdma_net.hpp"

namespace aplib::comm::test {
namespace {

using namespace std::chrono_literals;

PortSettings settings(const std::string& provider, const std::string& host = "one") {
  return {.address = "127.0.0.1", .ports = {}, .host = host, .key = JobKey::make(), .provider = provider};
}

TEST(RdmaKind, SaysWhatItIs) {
  const auto kind = rdma_kind();
  EXPECT_EQ(kind->name(), "rdma");
  EXPECT_EQ(kind->version().substr(0, 10), "libfabric ");
  EXPECT_TRUE(kind->has_remote_memory());
  EXPECT_TRUE(kind->keeps(Secure::off) && kind->keeps(Secure::auth));
  EXPECT_FALSE(kind->keeps(Secure::tls)) << "nothing is encrypted on the way";
}

TEST(RdmaKind, AProviderThatIsNotThere) {
  const auto kind = rdma_kind();
  const std::optional<std::string> why = kind->unusable(settings("nosuch"));
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("provider 'nosuch'"), std::string::npos) << *why;
  EXPECT_NE(why->find("fi_info"), std::string::npos) << *why;
  EXPECT_THROW((void)kind->open(settings("nosuch")), Error);
}

TEST(RdmaKind, SoftwareIsTakenByNameAlone) {
  const auto kind = rdma_kind();
  EXPECT_FALSE(kind->unusable(settings("tcp")));
  EXPECT_FALSE(kind->unusable(settings("shm")));
  if (const std::optional<std::string> why = kind->unusable(settings(""))) {
    EXPECT_NE(why->find("tcp"), std::string::npos) << *why;
  }
}

TEST(RdmaKind, EndpointsJoinOnOneNetwork) {
  const auto kind = rdma_kind();
  const auto tcp = kind->open(settings("tcp"));
  const auto other_tcp = kind->open(settings("tcp", "two"));
  const auto shm = kind->open(settings("shm"));
  const auto other_shm = kind->open(settings("shm"));
  const auto far_shm = kind->open(settings("shm", "two"));
  EXPECT_TRUE(kind->joins(tcp->endpoint(), other_tcp->endpoint()));
  EXPECT_TRUE(kind->joins(shm->endpoint(), other_shm->endpoint()));
  EXPECT_FALSE(kind->joins(shm->endpoint(), far_shm->endpoint())) << "they are on two hosts";
  EXPECT_FALSE(kind->joins(tcp->endpoint(), shm->endpoint()));
  for (const char* const text : {"", ":", ":::", "a:b:c", "tcp+ofi_rxm:-:-", "a:b:c:d:e"}) {
    EXPECT_FALSE(kind->joins(tcp->endpoint(), text)) << text;
    EXPECT_FALSE(kind->joins(text, tcp->endpoint())) << text;
  }
  EXPECT_EQ(tcp->endpoint().find_first_of(" ,;"), std::string::npos);
}

TEST(RdmaLink, AWrongEdgeBreaksItDropsWhatItQueuesAndIsNews) {
  LinkReports reports;
  std::atomic<bool> news = false;
  rdma::Sleep sleep;
  rdma::Link link(1, reports, news, sleep);
  ASSERT_TRUE(link.set_state(Link::State::gathering));
  link.packets.push_back({.bytes = std::vector<std::byte>(100), .kind = rdma::PacketKind::frames});
  link.queued = 100;
  ASSERT_FALSE(news);
  EXPECT_FALSE(link.set_state(Link::State::calling));
  EXPECT_EQ(link.state(), Link::State::gathering);
  EXPECT_TRUE(link.is_over());
  EXPECT_TRUE(link.packets.empty());
  EXPECT_EQ(link.queued, 0U);
  EXPECT_TRUE(news);
  EXPECT_NE(reports.take().lost->find("cannot go from gathering to calling"), std::string::npos);
  EXPECT_FALSE(link.come_up()) << "what is broken does not come up";
}

TEST(RdmaLink, IsUpOnBothSidesWhoeverBegins) {
  for (const Peer first : {0U, 1U}) {
    SCOPED_TRACE(first);
    LinkReports reports;
    std::atomic<bool> news = false;
    rdma::Sleep sleep;
    rdma::Link link(1 - first, reports, news, sleep);
    ASSERT_TRUE(link.set_state(Link::State::calling));
    // The higher number knocks, and the call that counts is the other one's.
    if (first == 1) {
      ASSERT_EQ(link.take_call(first), Link::Answer::taken);
    }
    ASSERT_TRUE(link.come_up());
    EXPECT_TRUE(link.is_up());
    EXPECT_TRUE(news);
    EXPECT_TRUE(reports.take().up);
    EXPECT_EQ(link.take_call(first), Link::Answer::unexpected);
    EXPECT_TRUE(link.is_up()) << "a second greeting changes nothing";
  }
}

TEST(RdmaTest, WhoIsNotReachedIsAnError) {
  const auto kind = rdma_kind();
  const auto port = kind->open(settings("tcp"));
  const auto module = port->join({.machine = "m", .self = 0, .endpoints = {port->endpoint(), "", "junk"}, .names = {}});
  Recorder recorder(3);
  module->start(recorder);
  for (const Peer peer : {0U, 1U, 2U, 3U}) {
    EXPECT_FALSE(module->reaches_memory(peer));
    EXPECT_THROW(module->send(peer, {}, {}), Error) << peer;
  }
}

TEST(RdmaTest, StrangersAreLostAndCounted) {
  // Process 1 has another key: its packets are dropped, and neither accepts the other.
  RdmaNet net(2, {.peer_timeout = 2s, .stranger = 1});
  Node zero(net, 0, 2);
  Node one(net, 1, 2);
  zero.send(1, 10);
  one.send(0, 10);
  while (zero.recorder().lost(1) == 0 || one.recorder().lost(0) == 0) {
    zero.poll();
    one.poll();
  }
  EXPECT_EQ(zero.recorder().frames() + one.recorder().frames(), 0U);
  EXPECT_GT(zero.module().traffic().refused + one.module().traffic().refused,
            0U);  // the one whose greeting came first counts it
  EXPECT_NE(zero.recorder().why(1).find("key"), std::string::npos) << zero.recorder().why(1);
  zero.destroy();
  one.destroy();
}

TEST(RdmaTest, WhoIsGoneIsLostWhenSomethingIsSent) {
  RdmaNet net(2, {.peer_timeout = 3s});  // Long enough for a greeting on a busy computer.
  Node zero(net, 0, 2);
  Node one(net, 1, 2);
  std::vector<std::byte> memory(1'000);
  const MemoryKey key = one.module().expose(0, memory);
  zero.send(1, 10);
  while (one.recorder().frames(0) == 0) {
    zero.poll();
    one.poll();
  }
  net.abandon(1);
  const std::vector<std::byte> ones(memory.size(), std::byte{1});
  zero.module().write(1, key, reinterpret_cast<std::uintptr_t>(memory.data()), ones, 1);
  while (zero.recorder().lost(1) == 0) {
    if (!zero.poll()) zero.module().wait(10ms);
  }
  ASSERT_TRUE(zero.recorder().transfer(1));
  EXPECT_FALSE(*zero.recorder().transfer(1));
  one.destroy();
  zero.destroy();
}

/// Polls `node` for that long, and sleeps between polls.
void go_on(Node& node, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    if (!node.poll()) node.module().wait(5ms);
  }
}

TEST(RdmaTest, APauseAboveHalfOfThePeerTimeoutIsSurvived) {
  // In a process that does not poll, the provider makes no progress, as if the process had been stopped. The other
  // process's read of the large body makes no progress either, so that process asks whether anybody is there.
  RdmaNet net(2, {.peer_timeout = 4s});  // A busy computer makes the pause longer.
  Node zero(net, 0, 2);
  Node one(net, 1, 2);
  zero.send(1, 1);
  std::uint64_t frames = 1;
  const auto all_come = [&] {
    while (one.recorder().frames(0) != frames && zero.recorder().lost(1) + one.recorder().lost(0) == 0) {
      zero.poll();
      one.poll();
    }
    EXPECT_EQ(zero.recorder().lost(1), 0U) << zero.recorder().why(1);
    EXPECT_EQ(one.recorder().lost(0), 0U) << one.recorder().why(0);
    return one.recorder().frames(0) == frames;
  };
  for (int pause = 0; pause < 2; ++pause) {
    ASSERT_TRUE(all_come());
    zero.send(1, 4'000'000);
    zero.send(1, 100);
    frames += 2;
    go_on(one, 2'400ms);
    ASSERT_EQ(one.recorder().frames(0), frames - 2) << "the provider went on by itself: this test proves nothing";
    ASSERT_EQ(one.recorder().large_begun(0), pause + 1U);
  }
  EXPECT_TRUE(all_come());
  zero.destroy();
  one.destroy();
}

/// Both poll for that long, and often enough then: a busy computer may have had no time for it.
void settle(Node& one, Node& other, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (int left = 100; left != 0;) {
    if (!one.poll() && !other.poll()) one.module().wait(1ms);
    if (std::chrono::steady_clock::now() >= end) --left;
  }
}

enum class HowToSleep { wait, descriptor };

/// How long it takes from `begin` until `node` is told of the loss of `peer`. It sleeps while nothing comes, as a
/// program's thread does.
std::chrono::milliseconds until_lost(Node& node, Peer peer, HowToSleep how,
                                     std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now()) {
  while (node.recorder().lost(peer) == 0) {
    if (node.poll()) continue;
    if (how == HowToSleep::wait) {
      node.module().wait(std::nullopt);
      continue;
    }
    pollfd wish{node.module().descriptor(), POLLIN, 0};
    if (node.module().arm()) ::poll(&wish, 1, -1);
    node.module().disarm();
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
}

class Silence : public testing::TestWithParam<HowToSleep> {};

// A process that does not poll is like one behind a cut cable: its provider makes no progress, and no connection ends.
TEST_P(Silence, IsLostWhenNothingArrivesForThePeerTimeout) {
  RdmaNet net(2, {.peer_timeout = 2s});
  Node zero(net, 0, 2);
  Node one(net, 1, 2);
  zero.send(1, 10);
  one.send(0, 10);
  while (one.recorder().frames(0) == 0 || zero.recorder().frames(1) == 0) {
    zero.poll();
    one.poll();
  }
  settle(zero, one, 400ms);
  const auto begin = std::chrono::steady_clock::now();
  zero.send(1, 10);  // The provider accepts it and reports success.
  const std::chrono::milliseconds time = until_lost(zero, 1, GetParam(), begin);
  EXPECT_GE(time, 2s);
  EXPECT_LT(time, 8s) << "2.25 s, on a computer with nothing else to do";
  EXPECT_EQ(zero.recorder().why(1), "it does not answer");
  zero.destroy();
  one.destroy();
}

TEST_P(Silence, IsLostInTheMiddleOfALargeBody) {
  RdmaNet net(3, {.peer_timeout = 2s});
  Node zero(net, 0, 3);
  Node one(net, 1, 3);
  Node two(net, 2, 3);
  one.send(2, 10);
  while (two.recorder().frames(1) == 0) {
    one.poll();
    two.poll();
  }
  zero.send(1, 1'000'000);
  while (one.recorder().large_begun(0) == 0) {
    zero.poll();
    one.poll();
  }
  two.recorder().want(1, false);
  constexpr std::uint64_t waiting = 100;
  for (std::uint64_t i = 0; i < waiting; ++i) one.send(2, 10'000);
  {
    const std::jthread other([&two](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (!two.poll()) two.module().wait(5ms);
      }
    });
    EXPECT_LT(until_lost(one, 0, GetParam()), 8s) << "the reader";
  }
  ASSERT_EQ(one.recorder().large_broken(0), 1U);
  EXPECT_EQ(one.recorder().lost(2), 0U) << one.recorder().why(2);
  // The others go on: what waits for them comes, and so does what is sent now.
  EXPECT_GT(one.module().queued(2), 0U);
  two.recorder().want(1, true);
  one.send(2, 100'000);
  two.send(1, 10);
  while (two.recorder().frames(1) != 2 + waiting || one.recorder().frames(2) == 0) {
    ASSERT_EQ(one.recorder().lost(2) + two.recorder().lost(1), 0U);
    one.poll();
    two.poll();
  }
  // The silent one comes back. Its bytes may arrive until the receiver wants its memory.
  settle(zero, one, 200ms);
  one.module().let_go();
  const std::span<const std::byte> memory = one.recorder().incomplete(0);
  const std::vector<std::byte> then(memory.begin(), memory.end());
  const auto end = std::chrono::steady_clock::now() + 200ms;
  while (std::chrono::steady_clock::now() < end) {
    zero.poll();
    one.module().flush();
  }
  EXPECT_TRUE(testing_support::same_bytes(then, memory));
  one.send(2, 10);  // dropped
  EXPECT_EQ(one.module().queued(2), 0U);
  zero.destroy();
  one.destroy();
  two.destroy();
}

INSTANTIATE_TEST_SUITE_P(Rdma, Silence, testing::Values(HowToSleep::wait, HowToSleep::descriptor),
                         [](const auto& info) { return info.param == HowToSleep::wait ? "wait" : "descriptor"; });

TEST(RdmaTest, WhoEndsInTheMiddleOfALargeBodyEnds) {
  for (const bool lets_go : {false, true}) {
    RdmaNet net(2, {});
    Node zero(net, 0, 2);
    Node one(net, 1, 2);
    constexpr std::size_t bytes = 12'000'000;  // more than the system takes at once
    zero.send(1, bytes);
    while (one.recorder().large_begun(0) == 0) {
      zero.poll();
      one.poll();
    }
    for (int i = 0; i < 2; ++i) {  // a part of it comes
      zero.poll();
      one.poll();
    }
    ASSERT_EQ(one.recorder().frames(0), 0U);
    if (lets_go) one.module().let_go();
    one.destroy();
    EXPECT_EQ(one.recorder().large_broken(0), 1U);
    zero.destroy();
  }
}

TEST(RdmaTest, WhoComesBackAfterItsLossReadsNoOtherBytes) {
  RdmaNet net(2, {.peer_timeout = 2s});
  Node zero(net, 0, 2);
  Node one(net, 1, 2);
  constexpr std::size_t bytes =
      12'000'000;  // More than the system takes at once, so that the rest is sent from memory later.
  zero.send(1, bytes);
  while (one.recorder().large_begun(0) == 0) {
    zero.poll();
    one.poll();
  }
  for (int i = 0; i < 20; ++i) zero.poll();  // begins to answer the reads
  EXPECT_LT(until_lost(zero, 1, HowToSleep::wait), 8s);
  // If the sender's memory were free, this would overwrite it.
  std::vector<std::vector<std::byte>> others;
  for (int i = 0; i < 8; ++i) others.emplace_back(2 * bytes / (1U << i), std::byte{0x5a});
  settle(zero, one, 500ms);  // The recorder checks what arrives.
  EXPECT_LE(one.recorder().frames(0), 1U);
  zero.destroy();
  one.destroy();
}

TEST(RdmaTest, NobodyIsAskedWhileNothingIsSent) {
  RdmaNet net(2, {.peer_timeout = 2s});
  Node zero(net, 0, 2);
  Node one(net, 1, 2);
  zero.send(1, 10);
  one.send(0, 10);
  while (one.recorder().frames(0) + zero.recorder().frames(1) != 2) {
    zero.poll();
    one.poll();
  }
  settle(zero, one, 1'600ms);  // both have asked and answered since
  go_on(zero, 5s);             // without the other one
  EXPECT_EQ(zero.recorder().lost(1), 0U) << zero.recorder().why(1);
  go_on(one, 3s);
  EXPECT_EQ(one.recorder().lost(0), 0U) << one.recorder().why(0);
  zero.destroy();
  one.destroy();
}

}  // namespace
}  // namespace aplib::comm::test
