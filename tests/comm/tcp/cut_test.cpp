// SPDX-License-Identifier: MIT
// Long links outlive their connections. A test cuts some of them, again and again, and sees that nothing is lost,
// doubled or reordered. Another seed: APLIB_TEST_SEED=n.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "checks.hpp"
#include "comm/tcp/address.hpp"
#include "comm/tcp/chunk.hpp"
#include "comm/tcp/outflow.hpp"
#include "raw_peer.hpp"
#include "tcp_net.hpp"

namespace aplib::comm::test {
namespace {

using namespace std::chrono_literals;
using testing_support::body_of;
using testing_support::contains;
using testing_support::same_bytes;
using testing_support::scaled;
using testing_support::test_seed;

constexpr std::uint64_t far_token = 2;  // of an introduction

/// Frames must come in the order of their keys, each with the body of its key.
struct InOrder final : Receiver {
  bool wants(Peer) override { return true; }
  void frame(Peer, const Label& label, std::span<const std::byte> body) override { check(label, body); }
  std::byte* large_begin(Peer, const Label&, std::size_t bytes) override {
    large.resize(bytes);
    return large.data();
  }
  void large_end(Peer, const Label& label, std::size_t, bool complete) override {
    if (complete) check(label, large);
  }
  void peer_lost(Peer, const std::string& reason) override {
    ++lost;
    why = reason;
  }
  void check(const Label& label, std::span<const std::byte> body) {
    EXPECT_EQ(label.key, frames);
    EXPECT_TRUE(same_bytes(body, body_of(body.size(), static_cast<unsigned>(label.key))));
    ++frames;
  }
  std::vector<std::byte> large;
  std::uint64_t frames = 0;
  std::uint64_t lost = 0;
  std::string why;
};

std::uint16_t port_of(const sockaddr_in& address) { return ntohs(address.sin_port); }

class LongLink : public testing::Test {
 protected:
  void make(TcpNetOptions options) {
    net = std::make_unique<TcpNet>(2, options);
    for (Peer peer = 0; peer < 2; ++peer) {
      modules[peer] = net->module(peer);
      modules[peer]->start(receivers[peer]);
    }
  }
  void TearDown() override {
    for (auto& module : modules) module.reset();
  }

  template <class Done>
  bool pump(Done done, std::chrono::seconds limit = 60s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done()) {
      for (const auto& module : modules)
        if (module) module->poll();
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }
  void send(Peer from, std::size_t bytes) {
    const std::uint64_t key = sent[from]++;
    modules[from]->send(1 - from, {.key = key}, body_of(bytes, static_cast<unsigned>(key)));
  }
  bool all_arrived() const { return receivers[1].frames == sent[0] && receivers[0].frames == sent[1]; }

  /// The connections between the two, which are both in this process: the sockets of either end.
  std::vector<int> connections() const {
    std::vector<std::uint16_t> ports;
    for (Peer peer = 0; peer < 2; ++peer) ports.push_back(tcp::parse_endpoint(net->endpoint(peer))->port());
    std::vector<int> found;
    constexpr int descriptors = 256;
    for (int socket = 0; socket < descriptors; ++socket) {
      sockaddr_in own{};
      sockaddr_in other{};
      socklen_t own_bytes = sizeof own;
      socklen_t other_bytes = sizeof other;
      if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0 || own.sin_family != AF_INET ||
          ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0)
        continue;
      for (const std::uint16_t port : ports)
        if (port_of(own) == port || port_of(other) == port) found.push_back(socket);
    }
    return found;
  }

  std::unique_ptr<TcpNet> net;
  std::array<InOrder, 2> receivers;
  std::array<std::unique_ptr<Module>, 2> modules;
  std::array<std::uint64_t, 2> sent{};
};

class Cuts : public LongLink, public testing::WithParamInterface<Secure> {};

TEST_P(Cuts, NothingIsLostDoubledOrReordered) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  std::mt19937_64 random(test_seed());
  make({.secure = GetParam(), .streams = 3});
  send(0, 8);
  ASSERT_TRUE(pump([&] { return all_arrived(); }));
  // In many a round there is nothing to cut yet; in how many depends on how fast connections come back.
  const std::uint64_t cuts_wanted = scaled(400);
  std::uint64_t cuts = 0;
  while (cuts < cuts_wanted) {
    for (int frames = 0; frames < 6; ++frames) {
      const std::uint64_t kind = random() % 10;
      send(random() % 2, kind < 6 ? random() % 200 : kind < 9 ? random() % 20'000 : random() % 400'000);
    }
    for (std::uint64_t polls = random() % 20; polls != 0; --polls)
      for (const auto& module : modules) module->poll();
    const std::vector<int> sockets = connections();
    const bool all = random() % 2 == 0;
    for (const int socket : sockets) {
      if (!all && random() % 3 != 0) continue;
      ::shutdown(socket, random() % 2 == 0 ? SHUT_RDWR : SHUT_WR);
      ++cuts;
    }
    ASSERT_TRUE(pump([&] { return all_arrived() || random() % 200 == 0; }));
  }
  EXPECT_TRUE(pump([&] { return all_arrived(); }));
  EXPECT_EQ(receivers[0].lost + receivers[1].lost, 0U) << receivers[0].why << receivers[1].why;
}

INSTANTIATE_TEST_SUITE_P(LongLink, Cuts, testing::Values(Secure::auth, Secure::tls),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST_F(LongLink, ThatWasCutIsLostWhenItDoesNotComeBackInTime) {
  // Only [0] reaches [1], which therefore cannot know that [0] has ended.
  make({.streams = 2, .resume_time = 200ms, .way = [](Peer self, Peer) {
          return Way{.kind = self == 0 ? Way::Kind::calls : Way::Kind::called};
        }});
  send(0, 8);
  ASSERT_TRUE(pump([&] { return all_arrived(); }));
  modules[0]->abandon();
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(pump([&] {
    modules[1]->wait(10ms);
    return receivers[1].lost != 0;
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 190ms);
  EXPECT_TRUE(contains(receivers[1].why,
                       "by peer), and did not come back within 0.2 s (resume-time)"))  // closed, or reset
      << receivers[1].why;
}

TEST_F(LongLink, AProcessThatHasEndedIsNotWaitedFor) {
  make({.streams = 2});
  send(0, 8);
  ASSERT_TRUE(pump([&] { return all_arrived(); }));
  modules[0]->abandon();
  ASSERT_TRUE(pump([&] { return receivers[1].lost != 0; }));
  EXPECT_EQ(receivers[1].why, "connection refused at " + net->endpoint(0) + ": its process has ended");
}

TEST_F(LongLink, PeersThatBreakTheRulesAreLost) {
  struct Case {
    tcp::Chunk chunk;
    std::string why;
  };
  const std::vector<Case> cases{
      {{.offset = tcp::Outflow::window_bytes, .bytes = 1}, "may be under way"},
      {{.acknowledged = 1}, "it has taken 1 bytes of a stream of which 0 were sent"},
      {{.bytes = tcp::Chunk::bytes_max + 1}, "no chunk of a stream begins so"},
  };
  for (const Case& each : cases) {
    TcpNet one(2, {.resume_time = 100ms});
    InOrder receiver;
    const auto module = one.module(0);
    module->start(receiver);
    const Introduction who{Secure::auth, Purpose::data, 0, 1, 0, TcpNet::machine(), far_token};
    RawConnection peer(one.endpoint(0));
    ASSERT_EQ(peer.greet(one.key(), who), 1);
    std::array<std::byte, tcp::Chunk::header_bytes> header;
    tcp::encode_chunk(each.chunk, header);
    peer.write(header);
    while (receiver.lost == 0) {
      module->poll();
      module->wait(10ms);
    }
    EXPECT_TRUE(contains(receiver.why, each.why)) << receiver.why;
    // It is told so when it comes back.
    constexpr int ended = 3;
    RawConnection again(one.endpoint(0));
    EXPECT_EQ(again.greet(one.key(), who), ended);
  }
}

}  // namespace
}  // namespace aplib::comm::test
