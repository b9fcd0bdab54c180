// SPDX-License-Identifier: MIT
// tcp beyond the contract: strangers are dropped, peers that misbehave are lost with a cause, small frames are sent
// together, and both sides may connect at once.
#include "comm/tcp/tcp_module.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "comm/tcp/outflow.hpp"
#include "comm/tcp/stream.hpp"
#include "raw_peer.hpp"
#include "tcp_net.hpp"

namespace aplib::comm::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t small_bytes = 64;

/// Counts upcalls and keeps the reasons.
struct Counter final : Receiver {
  bool wants(Peer) override { return true; }
  void frame(Peer, const Label& label, std::span<const std::byte>) override {
    ++frames;
    if (label.key < last_key) ++out_of_order;
    last_key = label.key;
  }
  std::byte* large_begin(Peer, const Label&, std::size_t bytes) override {
    large.resize(bytes);
    return large.data();
  }
  void large_end(Peer, const Label&, std::size_t, bool complete) override { ++(complete ? frames : broken); }
  void peer_lost(Peer, const std::string& reason) override {
    ++lost;
    why = reason;
  }
  std::vector<std::byte> large;
  std::uint64_t frames = 0;
  std::uint64_t broken = 0;
  std::uint64_t lost = 0;
  std::uint64_t last_key = 0;
  std::uint64_t out_of_order = 0;
  std::string why;
};

class Tcp : public testing::Test {
 protected:
  void make(std::uint32_t processes, TcpNetOptions options = {}) {
    net = std::make_unique<TcpNet>(processes, options);
    receivers.resize(processes);
    for (Peer peer = 0; peer < processes; ++peer) {
      receivers[peer] = std::make_unique<Counter>();
      modules.push_back(net->module(peer));
      modules.back()->start(*receivers[peer]);
    }
  }
  void TearDown() override { modules.clear(); }

  template <class Done>
  void pump(Done done) {
    while (!done())
      for (const auto& module : modules) module->poll();
  }
  void send(Peer from, Peer to, std::uint64_t key = 0, std::size_t bytes = small_bytes) {
    const std::vector<std::byte> body(bytes, std::byte{7});
    modules[from]->send(to, {.key = key}, body);
  }
  Introduction as(Peer self, Peer peer, std::uint64_t streams = 1) const {
    return {Secure::auth, Purpose::data, 0, self, peer, "machine-of-the-test", streams};
  }

  std::unique_ptr<TcpNet> net;
  std::vector<std::unique_ptr<Counter>> receivers;
  std::vector<std::unique_ptr<Module>> modules;
};

/// What the connection from this address to 127.0.0.1 is controlled by, before and after it is prepared for frames.
std::pair<std::string, std::string> congestion_control(const char* from) {
  const os::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const os::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto at = [](const char* address, in_port_t port) {
    sockaddr_in place{.sin_family = AF_INET, .sin_port = port, .sin_addr = {}, .sin_zero = {}};
    EXPECT_EQ(::inet_pton(AF_INET, address, &place.sin_addr), 1);
    return place;
  };
  sockaddr_in there = at("127.0.0.1", 0);
  const sockaddr_in here = at(from, 0);
  socklen_t bytes = sizeof there;
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&there), bytes), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&there), &bytes), 0);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&here), bytes), 0);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), bytes), 0);
  const auto now = [&socket] {
    std::array<char, 16> name{};
    socklen_t size = name.size();
    EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
    return std::string(name.data());
  };
  const std::string before = now();
  tcp::prepare_for_frames(socket.get());
  return {before, now()};
}

TEST(TcpSocket, NothingIsPacedWithinAHostAndTheSystemChoosesBetweenHosts) {
  EXPECT_EQ(congestion_control("127.0.0.1").second, "reno");
  const auto [before, after] = congestion_control("127.0.0.2");
  EXPECT_EQ(after, before);
}

TEST_F(Tcp, StrangersAreDroppedAndCounted) {
  make(2);
  std::uint64_t strangers = 0;
  for (const std::string text : {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "APlib\r\n\x1a???????????????????"}) {
    RawConnection stranger(net->endpoint(0));
    stranger.write(text);
    EXPECT_TRUE(stranger.read(64).empty()) << "not a byte comes back";
    ++strangers;
  }
  {
    RawConnection scan(net->endpoint(0));  // connects, and closes
  }
  ++strangers;
  RawConnection wrong_key(net->endpoint(0));
  EXPECT_EQ(wrong_key.greet(JobKey::make(), as(1, 0)), -1);
  ++strangers;
  pump([&] { return modules[0]->traffic().refused == strangers; });

  send(1, 0);
  pump([&] { return receivers[0]->frames == 1; });
  EXPECT_EQ(receivers[0]->lost, 0u);
}

TEST_F(Tcp, SilentConnectionsAreBounded) {
  make(2);
  constexpr int many = 150;
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < many; ++i) silent.push_back(std::make_unique<RawConnection>(net->endpoint(0)));
  pump([&] { return modules[0]->traffic().refused >= 50; });
  send(1, 0);
  pump([&] { return receivers[0]->frames == 1; });
}

TEST_F(Tcp, ImpossiblePeersAreDropped) {
  make(2);
  for (const Peer self : {Peer{0}, Peer{2}, Introduction::launcher}) {
    RawConnection peer(net->endpoint(0));
    EXPECT_EQ(peer.greet(net->key(), as(self, 0)), -1);
  }
  Introduction too_many = as(1, 0, 1000);
  RawConnection peer(net->endpoint(0));
  EXPECT_EQ(peer.greet(net->key(), too_many), -1);
  EXPECT_EQ(receivers[0]->lost, 0u);
}

TEST_F(Tcp, GarbageAfterTheGreetingLosesThePeer) {
  make(2);
  RawConnection peer(net->endpoint(0));
  ASSERT_EQ(peer.greet(net->key(), as(1, 0)), 1);
  peer.write(std::string(100, 'x'));
  pump([&] { return receivers[0]->lost == 1; });
  EXPECT_NE(receivers[0]->why.find("no frame begins with"), std::string::npos) << receivers[0]->why;
  EXPECT_TRUE(peer.read(1).empty());
}

TEST_F(Tcp, ResetAndEndAreToldApart) {
  make(3);
  RawConnection resetting(net->endpoint(0));
  ASSERT_EQ(resetting.greet(net->key(), as(1, 0)), 1);
  resetting.reset();
  pump([&] { return receivers[0]->lost == 1; });
  EXPECT_EQ(receivers[0]->why, "connection reset by peer");
  {
    RawConnection ending(net->endpoint(0));
    ASSERT_EQ(ending.greet(net->key(), as(2, 0)), 1);
  }
  pump([&] { return receivers[0]->lost == 2; });
  EXPECT_EQ(receivers[0]->why, "connection closed by peer: its process has ended");
}

TEST_F(Tcp, ASecondConnectionOfAPeerIsDropped) {
  make(2);
  RawConnection first(net->endpoint(0));
  ASSERT_EQ(first.greet(net->key(), as(1, 0)), 1);
  RawConnection second(net->endpoint(0));
  EXPECT_EQ(second.greet(net->key(), as(1, 0)), -1);
}

TEST_F(Tcp, OfTwoCallsThatCrossNoneIsAStranger) {
  for (int round = 0; round < 50; ++round) {
    make(2);
    send(1, 0);
    send(0, 1);
    pump([&] { return receivers[0]->frames == 1 && receivers[1]->frames == 1; });
    EXPECT_EQ(modules[0]->traffic().refused + modules[1]->traffic().refused, 0U);
    modules.clear();
    receivers.clear();
  }
}

// What to do where a process was never reached.
constexpr const char* remedy =
    "; if a firewall stands between, ports = \"FIRST-LAST\" in [comm] names ports to open, and address in [[host]] "
    "another network";

TEST_F(Tcp, WhoIsNotThereIsLostWithTheReason) {
  make(2);
  modules[1].reset();
  modules.pop_back();
  send(0, 1);
  pump([&] { return receivers[0]->lost == 1; });
  EXPECT_EQ(receivers[0]->why, "connection refused at " + net->endpoint(1) + ": its process has ended" + remedy);
  EXPECT_EQ(modules[0]->queued(1), 0u);
  send(0, 1);  // dropped
  EXPECT_EQ(modules[0]->queued(1), 0u);
}

TEST_F(Tcp, WhoDoesNotAnswerTheGreetingIsLost) {
  net = std::make_unique<TcpNet>(2, TcpNetOptions{.peer_timeout = 100ms});
  receivers.push_back(std::make_unique<Counter>());
  modules.push_back(net->module(0));  // the other listens, and nobody accepts
  modules[0]->start(*receivers[0]);
  send(0, 1);
  pump([&] {
    modules[0]->wait(50ms);
    return receivers[0]->lost == 1;
  });
  EXPECT_NE(receivers[0]->why.find("cannot be reached at " + net->endpoint(1)), std::string::npos) << receivers[0]->why;
  EXPECT_TRUE(receivers[0]->why.ends_with(remedy)) << receivers[0]->why;
}

TEST_F(Tcp, WhoHasAnotherKeyIsLost) {
  Counter counter;
  std::uint64_t refused = 0;
  // A busy computer may be late with the first answer.
  for (auto patience = 100ms; refused == 0 && patience < 1min; patience *= 4) {
    TcpNet mine(2, {.peer_timeout = patience});
    TcpNet other(2, {.peer_timeout = patience});
    tcp::Settings settings = mine.settings(0);
    settings.endpoints[1] = other.endpoint(1);
    counter = {};
    tcp::TcpModule caller(std::move(settings));
    caller.start(counter);
    const auto stranger = other.module(1);
    Counter ignored;
    stranger->start(ignored);
    caller.send(1, {}, {});
    while (counter.lost == 0) {
      caller.poll();
      caller.wait(50ms);
    }
    refused = stranger->traffic().refused;
  }
  EXPECT_GE(refused, 1U);
  EXPECT_NE(counter.why.find("while it was being greeted"), std::string::npos) << counter.why;
}

/// Another module carries frames to that process: tcp sends nothing there, and takes nothing from there.
TEST_F(Tcp, AProcessWithoutEndpointIsNotReached) {
  TcpNet of_all(3, {});
  tcp::Settings settings = of_all.settings(0);
  settings.endpoints[2] = {};
  Counter counter;
  tcp::TcpModule module(std::move(settings));
  module.start(counter);
  Counter others;
  const auto reached = of_all.module(1);
  tcp::Settings hasty = of_all.settings(2);
  hasty.peer_timeout = 100ms;
  tcp::TcpModule not_reached(std::move(hasty));
  reached->start(others);
  Counter lonely;
  not_reached.start(lonely);

  module.send(1, {}, {});
  not_reached.send(0, {}, {});
  while (others.frames == 0 || lonely.lost == 0) {
    for (Module* each : {static_cast<Module*>(&module), reached.get(), static_cast<Module*>(&not_reached)})
      each->poll();
    not_reached.wait(1ms);
  }
  EXPECT_EQ(counter.frames, 0U);
  EXPECT_EQ(module.queued(2), 0U);
  try {
    module.send(2, {}, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "tcp: send: process 2 is not reached by this module");
  }
}

class Calls : public testing::TestWithParam<std::uint32_t> {};

/// Both send their first frame at the same time, many times: nothing is lost or doubled, and the order is kept.
TEST_P(Calls, OfBothAtOnce) {
  constexpr int rounds = 20;
  constexpr std::uint64_t frames = 30;
  for (int round = 0; round < rounds; ++round) {
    TcpNet net(2, {.secure = round % 4 == 3 ? Secure::tls : Secure::auth, .streams = GetParam()});
    std::barrier together(2);
    const auto process = [&](Peer self) {
      Counter counter;
      const auto module = net.module(self);
      module->start(counter);
      const std::vector<std::byte> small(small_bytes);
      const std::vector<std::byte> large(tcp::Outflow::other_lanes_from_bytes + 123'456);
      together.arrive_and_wait();
      for (std::uint64_t key = 0; key < frames; ++key)
        module->send(1 - self, {.key = key}, key % 10 == 5 ? large : small);
      while (counter.frames < frames && counter.lost == 0) {
        if (!module->poll()) module->wait(1s);
      }
      EXPECT_EQ(counter.frames, frames) << counter.why;
      EXPECT_EQ(counter.out_of_order, 0u);
      EXPECT_TRUE(module->close(60s));
    };
    std::thread other(process, 1);
    process(0);
    other.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, Calls, testing::Values(1u, 3u));

TEST_F(Tcp, SmallFramesGoOutTogether) {
  make(2);
  send(0, 1);
  pump([&] { return receivers[1]->frames == 1; });
  const std::uint64_t before = modules[0]->traffic().system_calls;
  constexpr std::uint64_t frames = 20'000;
  for (std::uint64_t i = 0; i < frames; ++i) send(0, 1, i);
  modules[0]->flush();
  const std::uint64_t calls = modules[0]->traffic().system_calls - before;
  EXPECT_LT(calls, frames / 20);
  pump([&] { return receivers[1]->frames == 1 + frames; });
  EXPECT_EQ(receivers[1]->out_of_order, 0u);
}

TEST_F(Tcp, AFrameThatIsAloneGoesOutAtOnce) {
  make(2);
  send(0, 1);
  pump([&] { return receivers[1]->frames == 1; });
  std::this_thread::sleep_for(1ms);
  const std::uint64_t before = modules[0]->traffic().system_calls;
  send(0, 1);
  EXPECT_EQ(modules[0]->queued(1), 0u);
  EXPECT_EQ(modules[0]->traffic().system_calls, before + 1);
}

TEST_F(Tcp, SaysHowAPairIsConnected) {
  make(2, {.streams = 2});
  EXPECT_EQ(modules[0]->describe(1), "tcp " + net->endpoint(1) + ", not connected, auth");
  send(0, 1);
  pump([&] { return receivers[1]->frames == 1; });
  const std::string two = "tcp " + net->endpoint(1) + ", 2 streams, auth";
  pump([&] { return modules[0]->describe(1) == two; });
  EXPECT_THROW((void)modules[0]->describe(2), Error);
}

TEST(OutQueue, GivesBackWhatWasAppended) {
  std::uint32_t random = 4711;
  const auto next = [&] { return random = random * 1664525 + 1013904223; };
  tcp::OutQueue queue;
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  for (int i = 0; i < 400; ++i) {
    std::vector<std::byte> first(next() >> 28);
    std::vector<std::byte> second(next() >> (next() % 8 == 0 ? 14 : 22));
    for (auto* bytes : {&first, &second}) {
      for (std::byte& byte : *bytes) byte = std::byte(next() >> 24);
      in.insert(in.end(), bytes->begin(), bytes->end());
    }
    queue.append(first, second);
    iovec pieces[4];
    const std::size_t count = queue.peek(pieces);
    std::size_t wanted = next() >> 20;
    for (std::size_t p = 0; p < count && wanted != 0; ++p) {
      const std::size_t part = std::min(wanted, pieces[p].iov_len);
      const auto* at = static_cast<const std::byte*>(pieces[p].iov_base);
      out.insert(out.end(), at, at + part);
      EXPECT_EQ(queue.remove(part), part);
      wanted -= part;
      if (part < pieces[p].iov_len) break;
    }
    ASSERT_EQ(queue.bytes(), in.size() - out.size());
  }
  ASSERT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
}

}  // namespace
}  // namespace aplib::comm::test
