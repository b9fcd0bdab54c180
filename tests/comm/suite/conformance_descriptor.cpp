// SPDX-License-Identifier: MIT
// Promises about sleeping on several modules at once: descriptor(), arm() and disarm(). A module without descriptor
// skips them.
#include <poll.h>

#include <csignal>

#include "conformance.hpp"

namespace aplib::comm::test {
namespace {

using namespace std::chrono_literals;

bool readable(Module& module, int milliseconds) {
  pollfd entry{module.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, milliseconds) > 0;
}

/// wait(), by the descriptor. `milliseconds` -1: for ever.
void sleep_on(Module& module, int milliseconds = -1) {
  if (module.arm()) readable(module, milliseconds);
  module.disarm();
}

/// Polls and sleeps, as Conformance::run() does.
void run_asleep(Node& node, const std::function<bool()>& done) {
  while (!done()) {
    if (!node.poll() && !done()) sleep_on(node.module());
  }
}

/// How often a thread that polls and sleeps is awake within a tenth of a second. A slow computer makes it fewer, never
/// more.
int wakes_when_idle(Node& node) {
  const auto end = std::chrono::steady_clock::now() + 100ms;
  int wakes = 0;
  for (; std::chrono::steady_clock::now() < end; ++wakes) {
    node.poll();
    sleep_on(node.module(), 20);
  }
  return wakes;
}
constexpr int few_wakes = 500;

TEST_P(Conformance, DescriptorIsAlwaysTheSame) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  const int descriptor = node(0).module().descriptor();
  node(1).send(0, 10);
  pump([&] { return node(0).recorder().frames() == 1; });
  EXPECT_EQ(node(0).module().descriptor(), descriptor);
}

TEST_P(Conformance, DescriptorHearsAWakeBeforeTheSleep) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  for (int i = 0; i < 100; ++i) {
    node(0).module().wake();
    sleep_on(node(0).module());
  }
  // It is handled once.
  EXPECT_LT(wakes_when_idle(node(0)), few_wakes);
}

TEST_P(Conformance, DescriptorHearsAWakeFromAnotherThread) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  std::atomic<int> round{0};
  constexpr int rounds = repeated(200);
  std::thread sleeper([&] {
    for (int next = 1; next <= rounds; ++next) {
      while (round.load() < next) sleep_on(node(0).module());
      round.store(-next);  // answers
      round.notify_one();
    }
  });
  for (int i = 1; i <= rounds; ++i) {
    round.store(i);
    node(0).module().wake();
    while (round.load() != -i) round.wait(i);
  }
  sleeper.join();
}

TEST_P(Conformance, DescriptorAWakeReachesAllWhoSleep) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  std::atomic<bool> over{false};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 4; ++i) {
    sleepers.emplace_back([&] {
      while (!over.load()) sleep_on(node(0).module());
      node(0).module().wake();  // For threads that have gone to sleep meanwhile.
    });
  }
  over.store(true);
  node(0).module().wake();
  for (std::thread& sleeper : sleepers) sleeper.join();
}

TEST_P(Conformance, DescriptorHearsFrames) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  constexpr std::uint64_t rounds = repeated(200);
  const auto play = [this](Peer self) {
    node(self).recorder().on_frame = [this, self](Peer from, const Label& label, std::size_t bytes) {
      if (self == 1 || label.key + 1 < rounds) node(self).send(from, bytes);
    };
    run_asleep(node(self), [this, self] { return node(self).recorder().frames() == rounds; });
    while (node(self).module().queued(1 - self) != 0) node(self).poll();  // The last answer: nothing wakes us for it.
  };
  node(0).send(1, 8);
  std::thread other(play, 1);
  play(0);
  other.join();
}

TEST_P(Conformance, DescriptorNobodyOversleepsUnderLoad) {
  make(3);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  constexpr std::uint64_t frames = repeated(200);
  std::atomic<int> through{0};
  std::vector<std::thread> threads;
  for (Peer self = 0; self < 3; ++self) {
    threads.emplace_back([&, self] {
      for (std::uint64_t i = 0; i < frames; ++i) {
        for (Peer to = 0; to < 3; ++to) {
          if (to != self) node(self).send(to, i % 20 == 0 ? 200'000 : 500);
        }
        node(self).poll();
      }
      run_asleep(node(self), [&] { return node(self).recorder().frames() == 2 * frames; });
      ++through;  // Others may still wait for what is queued here.
      for (Peer peer = 0; peer < 3; ++peer) node(peer).module().wake();
      run_asleep(node(self), [&] { return through.load() == 3; });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Conformance, DescriptorHearsThatThereIsRoomAgain) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  const std::uint64_t frames = send_until_queued(0, 1, 1'000'000, 3'000'000);
  std::thread receiver([&] {
    run_asleep(node(1), [&] { return node(1).recorder().frames() == frames; });
    node(0).module().wake();
  });
  run_asleep(node(0), [&] { return node(0).module().queued(1) == 0; });
  receiver.join();
}

TEST_P(Conformance, DescriptorHearsALoss) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  node(0).send(1, 10);
  node(1).send(0, 10);
  pump([&] { return node(0).recorder().frames() == 1 && node(1).recorder().frames() == 1; });
  if (!net_->kill(1)) GTEST_SKIP() << "needs a net that can kill a process";
  run_asleep(node(0), [&] { return node(0).recorder().lost(1) == 1; });
}

TEST_P(Conformance, DescriptorIsSilentWhenNothingIsLeft) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  node(0).send(1, 10);
  node(1).send(0, 100'000);
  pump([&] { return node(0).recorder().frames() == 1 && node(1).recorder().frames() == 1; });
  EXPECT_LT(wakes_when_idle(node(0)), few_wakes);
  EXPECT_LT(wakes_when_idle(node(1)), few_wakes);
}

TEST_P(Conformance, DescriptorIsSilentAboutWhatIsNotWanted) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  node(1).recorder().want(0, false);
  node(0).send(1, 10);
  pump([&] { return node(0).module().queued(1) == 0 && node(1).recorder().asked(0) != 0; });
  EXPECT_LT(wakes_when_idle(node(1)), few_wakes);
  node(1).recorder().want(0, true);
  pump([&] { return node(1).recorder().frames() == 1; });
}

TEST_P(Conformance, DescriptorIsSilentAfterALoss) {
  make(2);
  if (node(0).module().descriptor() < 0) GTEST_SKIP() << "needs a module with a descriptor";
  node(0).send(1, 10);
  pump([&] { return node(1).recorder().frames() == 1; });
  if (!net_->kill(1)) GTEST_SKIP() << "needs a net that can kill a process";
  pump([&] { return node(0).recorder().lost(1) == 1; }, {0});
  EXPECT_LT(wakes_when_idle(node(0)), few_wakes);
}

}  // namespace
}  // namespace aplib::comm::test
