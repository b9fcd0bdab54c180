// SPDX-License-Identifier: MIT
// Promises about sleeping: wait() and wake().
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "conformance.hpp"

namespace aplib::comm::test {
namespace {

using namespace std::chrono_literals;

TEST_P(Conformance, WakeBeforeWait) {
  make(2);
  for (int i = 0; i < 100; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    node(0).module().wake();
    node(0).module().wait(60s);
    ASSERT_LT(std::chrono::steady_clock::now() - begin, 60s) << "the wake() before wait() number " << i << " was lost";
  }
}

TEST_P(Conformance, WakeFromAnotherThread) {
  make(2);
  std::atomic<int> round{0};
  constexpr int rounds = repeated(500);
  std::thread waiter([&] {
    for (int next = 1; next <= rounds; ++next) {
      while (round.load() < next) node(0).module().wait(std::nullopt);
      round.store(-next);  // answers
      round.notify_one();
    }
  });
  for (int i = 1; i <= rounds; ++i) {
    round.store(i);
    node(0).module().wake();
    while (round.load() != -i) round.wait(i);
  }
  waiter.join();
}

TEST_P(Conformance, WakeReachesAllWhoWait) {
  make(2);
  std::atomic<bool> over{false};
  std::atomic<int> gone{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      while (!over.load()) node(0).module().wait(std::nullopt);
      ++gone;
      node(0).module().wake();  // For threads that have begun to wait meanwhile.
    });
  }
  over.store(true);
  node(0).module().wake();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(gone.load(), 4);
}

TEST_P(Conformance, WaitEndsWithItsTimeout) {
  make(2);
  // If a timeout is forgotten, something else wakes the thread, and the clock shows it.
  std::mutex mutex;
  std::condition_variable more;
  bool over = false;
  std::thread rescuer([&] {
    std::unique_lock lock(mutex);
    while (!more.wait_for(lock, 60s, [&] { return over; })) node(0).module().wake();
  });
  for (const auto timeout : {0ns, 1ns, 1'000'000ns, 20'000'000ns, -5ns}) {
    const auto begin = std::chrono::steady_clock::now();
    node(0).module().wait(timeout);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s) << "wait(" << timeout.count() << " ns)";
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  more.notify_all();
  rescuer.join();
}

TEST_P(Conformance, IdleModulesSleep) {
  make(2);
  node(0).send(1, 10);
  node(1).send(0, 100'000);
  pump([&] { return node(0).recorder().frames() == 1 && node(1).recorder().frames() == 1; });
  // Waits may return early, but not again and again. A slow computer makes fewer, never more.
  const auto end = std::chrono::steady_clock::now() + 100ms;
  int waits = 0;
  for (; std::chrono::steady_clock::now() < end; ++waits) {
    node(0).poll();
    node(0).module().wait(20ms);
  }
  EXPECT_LT(waits, 500);
}

TEST_P(Conformance, UnwantedFramesDoNotKeepAwake) {
  make(2);
  node(1).recorder().want(0, false);
  node(0).send(1, 10);
  pump([&] { return node(0).module().queued(1) == 0 && node(1).recorder().asked(0) != 0; });
  const auto end = std::chrono::steady_clock::now() + 100ms;
  int waits = 0;
  for (; std::chrono::steady_clock::now() < end; ++waits) {
    node(1).poll();
    node(1).module().wait(20ms);
  }
  EXPECT_LT(waits, 500);
  node(1).recorder().want(0, true);
  pump([&] { return node(1).recorder().frames() == 1; });
}

TEST_P(Conformance, FramesEndTheWait) {
  make(2);
  constexpr std::uint64_t rounds = repeated(500);
  const auto play = [this](Peer self) {
    node(self).recorder().on_frame = [this, self](Peer from, const Label& label, std::size_t bytes) {
      if (self == 1 || label.key + 1 < rounds) node(self).send(from, bytes);
    };
    run(self, [this, self] { return node(self).recorder().frames() == rounds; });
    run(self, [this, self] { return node(self).module().queued(1 - self) == 0; });  // The last answer.
  };
  node(0).send(1, 8);
  std::thread other(play, 1);
  play(0);
  other.join();
}

// A module that is polled again and again may leave out what only sleepers need.

TEST_P(Conformance, FramesEndAWaitAfterMuchPolling) {
  make(2);
  constexpr std::uint64_t phase = 40;
  constexpr std::uint64_t phases = 12;
  const auto play = [this](Peer self) {
    const auto frames = [this, self] { return node(self).recorder().frames(); };
    node(self).recorder().on_frame = [this, self](Peer from, const Label& label, std::size_t bytes) {
      if (self == 1 || label.key + 1 < phase * phases) node(self).send(from, bytes);
    };
    for (std::uint64_t end = phase; end <= phase * phases; end += phase) {
      while (end / phase % 2 == 1 && frames() < end) node(self).poll();
      run(self, [&] { return frames() >= end; });
    }
    run(self, [this, self] { return node(self).module().queued(1 - self) == 0; });  // The last answer.
  };
  node(0).send(1, 8);
  std::thread other(play, 1);
  play(0);
  other.join();
}

TEST_P(Conformance, FramesEndAWaitThatBeginsWhileOthersPoll) {
  make(2);
  constexpr int rounds = 50;
  std::atomic<int> asked{0};
  std::atomic<int> answered{0};
  std::thread waiter([&] {
    for (int round = 1; round <= rounds; ++round) {
      while (asked.load() < round) node(1).module().wait(std::nullopt);
      answered.store(round);
    }
  });
  std::uint64_t sent = 0;
  for (int round = 1; round <= rounds; ++round) {
    for (int i = 0; i < 20 + round; ++i) {
      node(0).send(1, 8);
      ++sent;
      pump([&] { return node(1).recorder().frames() == sent; });
    }
    // From here on nobody polls there, so that this frame has to end the wait.
    asked.store(round);
    node(0).send(1, 8);
    ++sent;
    while (answered.load() != round) node(0).poll();
  }
  waiter.join();
  pump([&] { return node(1).recorder().frames() == sent; });
}

TEST_P(Conformance, NobodyOversleepsUnderLoad) {
  make(3);
  constexpr std::uint64_t frames = repeated(400);
  std::atomic<int> through{0};
  std::vector<std::thread> threads;
  for (Peer self = 0; self < 3; ++self) {
    threads.emplace_back([&, self] {
      // All send large amounts at the same time and sleep whenever a poll brings nothing.
      for (std::uint64_t i = 0; i < frames; ++i) {
        for (Peer to = 0; to < 3; ++to) {
          if (to != self) node(self).send(to, i % 20 == 0 ? 200'000 : 500);
        }
        node(self).poll();
      }
      run(self, [&] { return node(self).recorder().frames() == 2 * frames; });
      // Others may still wait for what is queued here.
      ++through;
      for (Peer peer = 0; peer < 3; ++peer) node(peer).module().wake();
      run(self, [&] { return through.load() == 3; });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Conformance, QueuedBytesGoOutWhileTheSenderSleeps) {
  make(2);
  const std::uint64_t frames = send_until_queued(0, 1, 1'000'000, 3'000'000);
  std::thread receiver([&] {
    run(1, [&] { return node(1).recorder().frames() == frames; });
    node(0).module().wake();
  });
  run(0, [&] { return node(0).module().queued(1) == 0; });
  receiver.join();
}

TEST_P(Conformance, WakeFromASignalHandler) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "needs a build without ThreadSanitizer: it keeps signals back and now and then loses one";
#endif
  make(2);
  static std::atomic<Module*> target{nullptr};
  target.store(&node(0).module());
  struct sigaction action {};
  action.sa_handler = [](int) { target.load()->wake(); };
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  // The call comes before the wait, or during it.
  std::raise(SIGUSR1);
  node(0).module().wait(std::nullopt);
  std::atomic<bool> waiting{false};
  std::atomic<bool> told{false};
  std::thread waiter([&] {
    waiting.store(true);
    while (!told.load()) node(0).module().wait(std::nullopt);
  });
  while (!waiting.load()) std::this_thread::yield();
  told.store(true);
  pthread_kill(waiter.native_handle(), SIGUSR1);
  waiter.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace aplib::comm::test
