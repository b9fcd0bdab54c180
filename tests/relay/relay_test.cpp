// SPDX-License-Identifier: MIT
// The relay alone: whom it joins, whom it does not answer, and what it does when an end is slow or goes away.
#include "relay/relay.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <future>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "checks.hpp"
#include "comm/connect/relay_call.hpp"
#include "comm/greeting.hpp"
#include "comm/tcp/address.hpp"
#include "relay/pumps.hpp"
#include "relay_net.hpp"

namespace aplib::relay::test {
namespace {

using comm::Greeting;
using comm::Introduction;
using comm::JobKey;
using Tcp = boost::asio::ip::tcp;

/// An end that blocks.
class End {
 public:
  explicit End(const RunningRelay& relay) { socket_.connect(*comm::tcp::parse_endpoint(relay.endpoint())); }

  void send(std::span<const std::byte> bytes) {
    boost::system::error_code ignored;  // the same
    boost::asio::write(socket_, boost::asio::buffer(bytes.data(), bytes.size()), ignored);
  }
  /// So many bytes, or fewer before the end.
  std::vector<std::byte> receive(std::size_t bytes) {
    std::vector<std::byte> got(bytes);
    boost::system::error_code ignored;
    got.resize(boost::asio::read(socket_, boost::asio::buffer(got), ignored));
    return got;
  }
  /// Returns whether the relay knows it.
  bool greet(const JobKey& key, Introduction mine) {
    Greeting greeting(Greeting::Role::caller, key, std::move(mine));
    while (greeting.state() == Greeting::State::going) {
      send(greeting.take_output());
      const auto got = receive(greeting.wants());
      if (got.empty()) return false;
      greeting.receive(got);
    }
    send(greeting.take_output());
    return greeting.state() == Greeting::State::done;
  }
  bool greet(const JobKey& key, std::uint32_t self, std::uint32_t peer, const std::string& machine = "machine") {
    return greet(key, {.secure = comm::Secure::auth,
                       .purpose = comm::Purpose::relay,
                       .self = self,
                       .peer = peer,
                       .machine = machine});
  }
  [[nodiscard]] bool is_joined() { return receive(1) == std::vector{comm::connect::joined_word}; }
  void finish() {
    boost::system::error_code ignored;  // the relay may have closed it
    socket_.shutdown(Tcp::socket::shutdown_send, ignored);
  }
  Tcp::socket& socket() { return socket_; }

 private:
  boost::asio::io_context io_;
  Tcp::socket socket_{io_};
};

class RelayTest : public testing::Test {
 protected:
  RelayTest() {
    relay_.with([this](Relay& relay) { relay.add_job("machine", key_); });
  }
  template <class Done>
  void await(const Done& done) {
    while (!done(relay_.counts())) std::this_thread::yield();
  }

  RunningRelay relay_;
  const JobKey key_ = JobKey::make();
};

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937_64 random(count);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_F(RelayTest, PassesOnBothWaysAndEndsEachDirectionByItself) {
  End a(relay_);
  End b(relay_);
  ASSERT_TRUE(a.greet(key_, 3, 7));
  ASSERT_TRUE(b.greet(key_, 7, 3));
  ASSERT_TRUE(a.is_joined());
  ASSERT_TRUE(b.is_joined());
  const auto there = random_bytes(3'000'000);
  const auto back = random_bytes(100);
  std::thread sender([&] {
    a.send(there);
    a.finish();
  });
  EXPECT_EQ(b.receive(there.size() + 1), there);  // and then its end
  sender.join();
  b.send(back);
  EXPECT_EQ(a.receive(back.size()), back);
  EXPECT_EQ(relay_.counts().pairs, 1);
  b.finish();
  await([](const Counts& counts) { return counts.pairs == 0; });
  const Counts counts = relay_.counts();
  EXPECT_EQ(counts.joined, 1);
  EXPECT_EQ(counts.bytes, there.size() + back.size());
  EXPECT_EQ(counts.strangers, 0);
}

TEST_F(RelayTest, StrangersGetNoByteAndAreCounted) {
  const JobKey wrong = JobKey::make();
  End right_key_of_another(relay_);
  EXPECT_FALSE(right_key_of_another.greet(key_, 1, 2, "another"));
  EXPECT_EQ(right_key_of_another.receive(1).size(), 0);
  End wrong_key(relay_);
  EXPECT_FALSE(wrong_key.greet(wrong, 1, 2));
  EXPECT_EQ(wrong_key.receive(1).size(), 0);
  End scan(relay_);
  scan.send(std::as_bytes(std::span("GET / HTTP/1.1\r\n\r\n")));
  EXPECT_EQ(scan.receive(1).size(), 0);
  End silent(relay_);
  silent.socket().close();
  await([](const Counts& counts) { return counts.strangers == 4; });
  EXPECT_EQ(relay_.counts().alone, 0);
}

// It was recorded on its way, and is sent once more.
TEST_F(RelayTest, ARepeatedHelloIsNotTaken) {
  Greeting recorded(
      Greeting::Role::caller, key_,
      {.secure = comm::Secure::auth, .purpose = comm::Purpose::relay, .self = 1, .peer = 2, .machine = "machine"});
  const auto hello = recorded.take_output();
  End first(relay_);
  first.send(hello);
  recorded.receive(first.receive(recorded.wants()));
  while (recorded.state() == Greeting::State::going) recorded.receive(first.receive(recorded.wants()));
  const auto proof = recorded.take_output();
  first.send(proof);
  await([](const Counts& counts) { return counts.alone == 1; });
  End again(relay_);
  again.send(hello);
  again.send(proof);
  await([](const Counts& counts) { return counts.strangers == 1; });
  EXPECT_EQ(relay_.counts().alone, 1);
}

TEST_F(RelayTest, AConnectionForSomethingElseIsRefused) {
  End end(relay_);
  static_cast<void>(end.greet(
      key_,
      {.secure = comm::Secure::auth, .purpose = comm::Purpose::data, .self = 1, .peer = 2, .machine = "machine"}));
  await([](const Counts& counts) { return counts.refused == 1; });
  EXPECT_EQ(relay_.counts().alone, 0);
}

TEST_F(RelayTest, AWayIsSeenWithoutAPair) {
  End end(relay_);
  EXPECT_TRUE(end.greet(key_, 5, 5));
  EXPECT_EQ(end.receive(1).size(), 0);
  EXPECT_EQ(relay_.counts().alone, 0);
  EXPECT_EQ(relay_.counts().strangers, 0);
}

TEST_F(RelayTest, AnEndThatGoesAwayIsForgotten) {
  {
    End end(relay_);
    ASSERT_TRUE(end.greet(key_, 1, 2));
    await([](const Counts& counts) { return counts.alone == 1; });
  }
  await([](const Counts& counts) { return counts.alone == 0; });
  EXPECT_EQ(relay_.counts().given_up, 1);
}

TEST_F(RelayTest, AnEndThatComesAgainCounts) {
  End first(relay_);
  ASSERT_TRUE(first.greet(key_, 1, 2));
  await([](const Counts& counts) { return counts.alone == 1; });
  End second(relay_);
  ASSERT_TRUE(second.greet(key_, 1, 2));
  EXPECT_EQ(first.receive(1).size(), 0);
  End other(relay_);
  ASSERT_TRUE(other.greet(key_, 2, 1));
  EXPECT_TRUE(second.is_joined());
  EXPECT_TRUE(other.is_joined());
}

TEST_F(RelayTest, AJobThatIsOverTakesItsPairsAlong) {
  const JobKey other_key = JobKey::make();
  relay_.with([&](Relay& relay) { relay.add_job("other", other_key); });
  End a(relay_);
  End b(relay_);
  End alone(relay_);
  End c(relay_);
  End d(relay_);
  ASSERT_TRUE(a.greet(key_, 1, 2) && b.greet(key_, 2, 1) && alone.greet(key_, 1, 3));
  ASSERT_TRUE(c.greet(other_key, 1, 2, "other") && d.greet(other_key, 2, 1, "other"));
  ASSERT_TRUE(a.is_joined() && b.is_joined() && c.is_joined() && d.is_joined());
  relay_.with([](Relay& relay) { relay.remove_job("machine"); });
  EXPECT_EQ(a.receive(1).size() + b.receive(1).size() + alone.receive(1).size(), 0);
  c.send(random_bytes(10));
  EXPECT_EQ(d.receive(10), random_bytes(10));
}

// The writer of one pair is stopped by its reader, and a second pair does not notice.
TEST_F(RelayTest, ASlowReaderStopsItsWriterAndNobodyElse) {
  End a(relay_);
  End slow(relay_);
  End c(relay_);
  End d(relay_);
  ASSERT_TRUE(a.greet(key_, 1, 2) && slow.greet(key_, 2, 1) && c.greet(key_, 3, 4) && d.greet(key_, 4, 3));
  ASSERT_TRUE(a.is_joined() && slow.is_joined() && c.is_joined() && d.is_joined());
  a.socket().non_blocking(true);
  const auto block = random_bytes(64 * 1024);
  std::size_t sent = 0;
  // Full when the system takes no more, although the other pair has made several rounds meanwhile.
  for (int full = 0; full < 50;) {
    boost::system::error_code error;
    const auto rest = std::span(block).subspan(sent % block.size());  // the last write may have taken a part
    const std::size_t more = a.socket().write_some(boost::asio::buffer(rest.data(), rest.size()), error);
    sent += more;
    full = more == 0 ? full + 1 : 0;
    c.send(std::span(block).first(1000));
    ASSERT_EQ(d.receive(1000).size(), 1000);
  }
  constexpr std::size_t system_bytes_max = 64 << 20;  // of both sockets' buffers
  EXPECT_LT(sent, system_bytes_max + Pumps::buffer_bytes);
  EXPECT_GT(sent, Pumps::buffer_bytes);
  a.finish();
  std::size_t got = 0;
  while (true) {
    const auto more = slow.receive(1 << 20);
    for (std::size_t i = 0; i < more.size(); i += 997) ASSERT_EQ(more[i], block[(got + i) % block.size()]);
    got += more.size();
    if (more.size() < 1 << 20) break;
  }
  EXPECT_EQ(got, sent);
}

TEST_F(RelayTest, SaysWhyAnotherRelayCannotBeCalled) {
  std::promise<std::string> why;
  relay_.with([&](Relay& relay) {
    relay.dial("/nowhere/at/all", {"machine", 1, 2}, [&](const std::string& text) { why.set_value(text); });
  });
  EXPECT_EQ(why.get_future().get(), "cannot be reached at /nowhere/at/all: No such file or directory");
}

TEST_F(RelayTest, FindsOutWhereAnotherRelayIsReached) {
  RunningRelay other;
  other.with([this](Relay& relay) { relay.add_job("machine", key_); });
  const auto look = [this](const std::vector<std::string>& places) {
    std::promise<std::string> told;
    relay_.with([&](Relay& relay) {
      relay.reach(places, "machine", [&](const std::string& place) { told.set_value(place); });
    });
    return told.get_future().get();
  };
  RunningRelay stranger;  // it does not know the job
  EXPECT_EQ(look({"127.0.0.1:1", stranger.endpoint(), other.endpoint(), "nowhere"}), other.endpoint());
  EXPECT_EQ(look({"127.0.0.1:1", stranger.endpoint()}), "");
  EXPECT_EQ(look({}), "");
  // Gateway to gateway: one call, as the end of the process here.
  End a(relay_);
  End b(other);
  ASSERT_TRUE(a.greet(key_, 1, 2) && b.greet(key_, 2, 1));
  relay_.with([&](Relay& relay) { relay.dial(other.endpoint(), {"machine", 1, 2}, [](const std::string&) {}); });
  ASSERT_TRUE(a.is_joined() && b.is_joined());
  a.send(random_bytes(1000));
  EXPECT_EQ(b.receive(1000), random_bytes(1000));
}

// Any bytes in place of a greeting: no answer, and the relay goes on.
TEST_F(RelayTest, AnyBytesMakeAStranger) {
  std::mt19937_64 random(16);
  const std::uint64_t rounds = testing_support::scaled(300, 4, 4);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    Greeting greeting(
        Greeting::Role::caller, key_,
        {.secure = comm::Secure::auth, .purpose = comm::Purpose::relay, .self = 1, .peer = 2, .machine = "machine"});
    auto hello = greeting.take_output();
    for (int i = 0; i < 3; ++i) hello[random() % hello.size()] = static_cast<std::byte>(random());
    if (round % 3 == 0) hello.resize(random() % hello.size());
    End end(relay_);
    end.send(hello);
    end.finish();
    EXPECT_EQ(end.receive(1).size(), 0) << "round " << round;
  }
  End a(relay_);
  End b(relay_);
  ASSERT_TRUE(a.greet(key_, 3, 7) && b.greet(key_, 7, 3));
  EXPECT_TRUE(a.is_joined() && b.is_joined());
}

}  // namespace
}  // namespace aplib::relay::test
