// SPDX-License-Identifier: MIT
// Promises about ends: lost peers, refused and broken frames, close().
#include <algorithm>
#include <future>

#include "checks.hpp"
#include "conformance.hpp"

namespace aplib::comm::test {
namespace {

using namespace std::chrono_literals;

constexpr auto long_linger = 60s;  // Never waited for while the promises are kept.

TEST_P(Conformance, RefusedLargeBodyLosesThePeer) {
  make(3);
  node(1).recorder().refuse_large(0);
  node(0).send(1, 100);
  node(0).send(1, 100'000);
  send_until_queued(0, 1, 1'000'000, 1'000'000);  // What is queued behind it is dropped too.
  pump([&] { return node(1).recorder().lost(0) == 1 && node(0).recorder().lost(1) == 1; });
  EXPECT_EQ(node(0).module().queued(1), 0U);
  EXPECT_EQ(node(1).recorder().frames(0), 1U);
  EXPECT_EQ(node(1).recorder().large_begun(0), 0U);
  node(0).send(1, 100);  // dropped
  node(1).send(0, 100);
  node(2).send(1, 100);
  node(2).send(0, 100);
  pump([&] { return node(1).recorder().frames(2) == 1 && node(0).recorder().frames(2) == 1; });
  EXPECT_EQ(node(0).module().queued(1), 0U);
  EXPECT_EQ(node(1).module().queued(0), 0U);
  EXPECT_EQ(node(0).recorder().frames(1), 0U);
  EXPECT_EQ(node(1).recorder().frames(0), 1U);
}

TEST_P(Conformance, DeathInsideALargeBody) {
  make(3);
  node(0).send(1, 1);
  node(2).send(1, 1);
  pump([&] { return node(1).recorder().frames() == 2; });
  for (int i = 0; i < 8 && node(0).module().queued(1) == 0; ++i) node(0).send(1, body_bytes_most);
  if (node(0).module().queued(1) == 0) GTEST_SKIP() << "needs a system that does not take everything at once";
  // The sender no longer polls, so the last body cannot be completed.
  pump([&] { return node(1).recorder().large_begun(0) != 0; }, {1, 2});
  if (!net_->kill(0)) GTEST_SKIP() << "needs a net that can kill a process";
  pump([&] { return node(1).recorder().lost(0) == 1; }, {1, 2});
  // Either the last body was on its way, or the end came between two.
  EXPECT_EQ(node(1).recorder().frames(0) - 1 + node(1).recorder().large_broken(0), node(1).recorder().large_begun(0));
  EXPECT_LE(node(1).recorder().large_broken(0), 1U);
  node(1).send(0, 100);  // dropped
  node(1).send(0, 1'000'000);
  EXPECT_EQ(node(1).module().queued(0), 0U);
  node(1).send(2, 100);
  node(2).send(1, 100'000);
  pump([&] { return node(2).recorder().frames(1) == 1 && node(1).recorder().frames(2) == 2; }, {1, 2});
}

TEST_P(Conformance, LetGoGivesTheMemoryOfALargeBodyBack) {
  make(2);
  Node& receiver = node(1);
  for (int i = 0; i < 4; ++i) node(0).send(1, body_bytes_most);
  pump([&] { return receiver.recorder().large_begun(0) != 0; });
  if (receiver.recorder().frames(0) != 0) return;  // It takes large bodies whole.
  receiver.module().let_go();
  const std::span<const std::byte> memory = receiver.recorder().incomplete(0);
  const std::vector<std::byte> then(memory.begin(), memory.end());
  // The sender goes on as if nothing had happened.
  std::jthread sender([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) node(0).poll();
  });
  for (int i = 0; i < 100; ++i) {
    receiver.module().flush();
    receiver.module().wait(1ms);
  }
  receiver.close(100ms);
  sender.request_stop();
  sender.join();
  EXPECT_EQ(receiver.recorder().large_broken(0), 1U);
  EXPECT_TRUE(testing_support::same_bytes(then, receiver.recorder().incomplete(0)));
}

TEST_P(Conformance, DeathWithFramesOnTheWay) {
  make(2);
  node(0).send(1, 1);
  pump([&] { return node(1).recorder().frames() == 1; });
  for (int i = 0; i < 1'000; ++i) node(0).send(1, static_cast<std::size_t>(i));
  node(0).module().flush();
  if (!net_->kill(0)) GTEST_SKIP() << "needs a net that can kill a process";
  // Any number of whole frames in order (the recorder checks that), then the loss.
  pump([&] { return node(1).recorder().lost(0) == 1; }, {1});
  const std::uint64_t frames = node(1).recorder().frames();
  for (int i = 0; i < 100; ++i) node(1).poll();
  EXPECT_EQ(node(1).recorder().frames(), frames);
  EXPECT_EQ(node(1).recorder().lost(0), 1U);
}

TEST_P(Conformance, DeathWakesTheSleeper) {
  make(2);
  node(0).send(1, 1);
  pump([&] { return node(1).recorder().frames() == 1; });
  std::thread sleeper([&] { run(1, [&] { return node(1).recorder().lost(0) == 1; }); });
  const bool can = net_->kill(0);
  if (!can) {
    // Wakes the sleeper: an ordered end is no loss, so the sleeper is told in another way.
    node(1).recorder().refuse_large(0);
    node(0).send(1, 100'000);
    pump([&] { return node(0).recorder().lost(1) == 1; }, {0});
  }
  sleeper.join();
  if (!can) GTEST_SKIP() << "needs a net that can kill a process";
}

TEST_P(Conformance, DamagedHeaderLosesThePeer) {
  make(3);
  node(0).send(1, 50);
  pump([&] { return node(1).recorder().frames() == 1; });
  if (!net_->corrupt(0, 1)) GTEST_SKIP() << "needs a net that can damage frames";
  for (int i = 0; i < 10; ++i) node(0).send(1, 50);
  pump([&] { return node(1).recorder().lost(0) == 1 && node(0).recorder().lost(1) == 1; });
  EXPECT_EQ(node(1).recorder().frames(), 1U);
  node(0).send(2, 10);
  node(2).send(1, 10);
  pump([&] { return node(1).recorder().frames(2) == 1 && node(2).recorder().frames(0) == 1; });
}

TEST_P(Conformance, CloseDeliversEverything) {
  make(3);
  constexpr std::uint64_t frames = 300;
  for (std::uint64_t i = 0; i < frames; ++i) {
    for (const Peer to : {1U, 2U}) node(0).send(to, i * i % 60'000);
  }
  std::future<bool> closed = std::async(std::launch::async, [&] { return node(0).close(long_linger); });
  pump([&] { return node(1).recorder().frames() == frames && node(2).recorder().frames() == frames; }, {1, 2});
  EXPECT_TRUE(closed.get());
  // The others go on, and what they send there is dropped silently.
  for (int i = 0; i < 20; ++i) {
    node(1).send(0, 1'000);
    node(1).send(2, 1'000);
    pump([&] { return node(2).recorder().frames(1) == static_cast<std::uint64_t>(i) + 1; }, {1, 2});
  }
  EXPECT_EQ(node(1).recorder().lost(0) + node(2).recorder().lost(0), 0U);
  EXPECT_EQ(node(0).recorder().lost(1) + node(0).recorder().lost(2), 0U);
}

TEST_P(Conformance, CloseWhileThePeerStillSends) {
  make(2);
  constexpr std::uint64_t frames = 100;
  for (std::uint64_t i = 0; i < frames; ++i) {
    node(0).send(1, 10'000);
    node(1).send(0, 10'000);
  }
  std::future<bool> closed = std::async(std::launch::async, [&] { return node(0).close(long_linger); });
  pump(
      [&] {
        node(1).send(0, 100);
        return node(1).recorder().frames() == frames;
      },
      {1});
  EXPECT_TRUE(closed.get());
  for (int i = 0; i < 100; ++i) node(1).poll();
  EXPECT_EQ(node(1).recorder().lost(0), 0U);
}

TEST_P(Conformance, BothCloseAtOnce) {
  make(2);
  // Each waits until the other has taken what it sends, although neither polls.
  for (int i = 0; i < 20; ++i) {
    node(0).send(1, 500'000);
    node(1).send(0, 500'000);
  }
  std::future<bool> one = std::async(std::launch::async, [&] { return node(0).close(long_linger); });
  std::future<bool> other = std::async(std::launch::async, [&] { return node(1).close(long_linger); });
  EXPECT_TRUE(one.get());
  EXPECT_TRUE(other.get());
  EXPECT_EQ(node(0).recorder().lost(1) + node(1).recorder().lost(0), 0U);
}

TEST_P(Conformance, CloseWithoutTimeSaysSo) {
  make(2);
  node(0).send(1, 8);  // Now they are connected: a process that has not heard of another cannot notice its loss.
  pump([&] { return node(1).recorder().frames(0) == 1; });
  const std::uint64_t frames = send_until_queued(0, 1, 1'000'000, 2'000'000);
  if (node(0).module().queued(1) == 0) GTEST_SKIP() << "needs a system that does not take everything at once";
  EXPECT_FALSE(node(0).close(0ns));
  // The loss follows frames that can no longer come.
  pump([&] { return node(1).recorder().lost(0) == 1; }, {1});
  EXPECT_LT(node(1).recorder().frames(), frames + 1);
}

TEST_P(Conformance, CloseEndsABodyUnderWay) {
  make(2);
  node(0).send(1, 8);  // Now they are connected; the sender does not poll after this.
  pump([&] { return node(1).recorder().frames(0) == 1; });
  for (int i = 0; i < 8 && node(0).module().queued(1) == 0; ++i) node(0).send(1, body_bytes_most);
  if (node(0).module().queued(1) == 0) GTEST_SKIP() << "needs a system that does not take everything at once";
  pump([&] { return node(1).recorder().large_begun(0) == node(1).recorder().frames(); }, {1});
  node(1).close(0ns);
  EXPECT_EQ(node(1).recorder().large_broken(0), 1U);
  EXPECT_EQ(node(1).recorder().lost(0), 0U);
}

TEST_P(Conformance, CloseOfAnIdleModule) {
  make(3);
  EXPECT_TRUE(node(0).close(long_linger));
  EXPECT_TRUE(node(1).close(0ns));
  pump_times(10);
  EXPECT_EQ(node(2).recorder().lost(0) + node(2).recorder().lost(1), 0U);
}

TEST_P(Conformance, DestructionIsAnOrderedEndWhenNothingIsQueued) {
  make(2);
  node(0).send(1, 100);
  pump([&] { return node(1).recorder().frames() == 1 && node(0).module().queued(1) == 0; });
  node(0).send(1, 200);
  pump([&] { return node(0).module().queued(1) == 0; }, {0});
  node(0).destroy();
  pump([&] { return node(1).recorder().frames() == 2; }, {1});
  for (int i = 0; i < 100; ++i) node(1).poll();
  EXPECT_EQ(node(1).recorder().lost(0), 0U);
}

}  // namespace
}  // namespace aplib::comm::test
