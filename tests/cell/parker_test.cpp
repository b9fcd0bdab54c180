// SPDX-License-Identifier: MIT
// The parker with the ring that it guards, under the deterministic scheduler and with real threads: no wake-up is lost.
#include "cell/parker.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "cell/ring.hpp"
#include "det/explore.hpp"
#include "machines.hpp"
#include "parker_model.hpp"

namespace aplib {
namespace {

// Two producers with a ring each, and one owner that sleeps whenever both rings are empty.
struct ParkerScenario {
  static constexpr int thread_count = 3;
  static constexpr std::uint32_t message_count = 6;
  static constexpr int producer_count = 2;

  ParkerScenario(ParkerModel model, bool with_timeout) : os(model), timed(with_timeout) {}

  void thread(int me) {
    if (me == producer_count) {
      consume();
      return;
    }
    for (std::uint32_t i = 0; i < message_count; ++i) {
      auto* entry = rings[me].prepare();
      while (entry == nullptr) {
        det::yield();
        entry = rings[me].prepare();
      }
      det::Scheduler::current()->plain_write(entry);
      entry->info = i;
      rings[me].publish();
      if (parker.wake_if_asleep()) ++woken[me];
    }
  }

  bool take_one() {
    for (int from = 0; from < producer_count; ++from) {
      if (auto* entry = rings[from].peek(); entry != nullptr) {
        det::Scheduler::current()->plain_read(entry);
        det::check(entry->info == taken[from], "messages arrive in order");
        rings[from].pop();
        ++taken[from];
        return true;
      }
      rings[from].settle();
    }
    return false;
  }

  [[nodiscard]] bool anything() {
    for (auto& ring : rings) {
      if (ring.peek() != nullptr) return true;
    }
    return false;
  }

  void consume() {
    while (taken[0] + taken[1] < producer_count * message_count) {
      if (take_one()) continue;
      parker.announce();
      if (anything()) {
        parker.cancel();
      } else {
        parker.sleep(timed ? std::optional(std::chrono::nanoseconds(std::chrono::seconds(1))) : std::nullopt);
      }
      det::check(!parker.is_asleep(), "the owner is awake after sleep and after cancel");
    }
  }

  ParkerModel os;
  bool timed;
  Parker<det::DetAtomic, ParkerModel> parker{os};
  Ring<det::DetAtomic, 4> rings[producer_count];
  std::uint32_t taken[producer_count]{};
  std::uint32_t woken[producer_count]{};
};

det::Outcome park(std::uint64_t seed_count, det::Memory memory, ParkerModel os, bool timed = false) {
  return det::explore_with(seed_count, {.memory = memory, .spurious_wakes = seed_count > 1000},
                           [=] { return std::make_unique<ParkerScenario>(os, timed); });
}

TEST(Parker, LosesNoWakeUpUnderAnySeed) {
  const std::uint64_t seeds = testing_support::scaled(2000, 4, 1);
  for (const det::Memory memory : {det::Memory::interleaving, det::Memory::tso, det::Memory::weak}) {
    for (const bool timed : {true, false}) {
      const det::Outcome outcome = park(seeds, memory, {}, timed);
      EXPECT_TRUE(outcome.ok) << outcome.failure;
    }
  }
}

TEST(Parker, IsCaughtWithoutItsFences) {
  for (const det::Memory memory : {det::Memory::tso, det::Memory::weak}) {
    for (const ParkerFault fault : {ParkerFault::no_sleeper_fence, ParkerFault::no_waker_fence}) {
      const det::Outcome outcome = park(1000, memory, {fault});
      EXPECT_NE(outcome.failure.find("lost wake-up"), std::string::npos) << outcome.failure;
    }
  }
}

// Ping-pong of real threads that sleep between messages. A sleep that ends by its timeout although a message has
// arrived is a lost wake-up.
void ping_pong(const ParkerOs& os, int rounds) {
  struct Side {
    explicit Side(const ParkerOs& system) : parker(system) {}
    Parker<> parker;
    Ring<std::atomic, 16> ring;
  };
  auto left = std::make_unique<Side>(os);
  auto right = std::make_unique<Side>(os);
  std::atomic<int> slept{0};
  std::atomic<int> lost{0};
  const auto receive = [&](Side& side) {
    for (;;) {
      if (auto* entry = side.ring.peek(); entry != nullptr) {
        const std::uint32_t value = entry->info;
        side.ring.pop();
        side.ring.settle();
        return value;
      }
      side.parker.announce();
      if (side.ring.peek() != nullptr) {
        side.parker.cancel();
      } else {
        ++slept;
        if (!side.parker.sleep(std::chrono::seconds(20)) && side.ring.peek() != nullptr) ++lost;
      }
    }
  };
  const auto send = [](Side& side, std::uint32_t value) {
    auto* entry = side.ring.prepare();
    entry->info = value;
    side.ring.publish();
    side.parker.wake_if_asleep();
  };
  std::thread other([&] {
    for (int i = 0; i < rounds; ++i) send(*left, receive(*right) + 1);
  });
  std::uint32_t wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto value = static_cast<std::uint32_t>(2 * i);
    send(*right, value);
    if (receive(*left) != value + 1) ++wrong;
  }
  other.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(lost.load(), 0);
  EXPECT_GT(slept.load(), 0) << "nobody slept: nothing was tried";
}

TEST(Parker, ManyAreWokenByOneCall) {
  if (!os::FutexGroup::can_wake_together()) GTEST_SKIP() << "needs futex_waitv: Linux 5.16";
  constexpr std::size_t count = 8;
  const ParkerOs os;
  std::vector<std::unique_ptr<Parker<>>> parkers;
  for (std::size_t i = 0; i < count; ++i) parkers.push_back(std::make_unique<Parker<>>(os));
  for (const bool timed : {false, true}) {
    std::vector<std::thread> threads;
    for (const auto& parker : parkers) {
      threads.emplace_back([&parker, timed] {
        parker->announce();
        EXPECT_TRUE(
            parker->sleep(timed ? std::optional(std::chrono::nanoseconds(std::chrono::hours(1))) : std::nullopt));
      });
    }
    std::size_t met = 0;
    while (met < count) {
      for (const auto& parker : parkers) {
        if (parker->wake_if_asleep([](const std::atomic<std::uint32_t>&) {})) ++met;
      }
    }
    os.group.wake_all();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Parker, RealThreadsPingPongThroughSleep) { ping_pong(ParkerOs{}, 5000); }

TEST(Parker, SleepEndsAtItsTimeout) {
  const ParkerOs os;
  Parker<> parker(os);
  parker.announce();
  EXPECT_TRUE(parker.is_asleep());
  EXPECT_FALSE(parker.sleep(std::chrono::milliseconds(1)));
  EXPECT_FALSE(parker.is_asleep());
}

TEST(Parker, OnlyASleeperIsWokenAndOnlyOnce) {
  const ParkerOs os;
  Parker<> parker(os);
  EXPECT_FALSE(parker.wake_if_asleep());
  parker.announce();
  EXPECT_TRUE(parker.wake_if_asleep());
  EXPECT_FALSE(parker.wake_if_asleep());
  EXPECT_TRUE(parker.sleep(std::nullopt));  // at once, because a waker was faster
  parker.announce();
  EXPECT_TRUE(parker.cancel());
  EXPECT_FALSE(parker.wake_if_asleep());
}

// ---------------------------------------------------------------- as a processor does it

// Two senders make their rings when they first send. One of them stops the machine at the end. The owner sleeps
// whenever there is no message, no new ring and no stop. It must end, with all messages.
struct ProcessorParkScenario {
  static constexpr int thread_count = 3;
  static constexpr int owner = 2;
  using ParkRing = Ring<det::DetAtomic, 4>;

  enum class Forgets { nothing, new_rings, the_stop, to_look };
  /// `few`: one message each and no stop, so that no later wake-up hides a lost one.
  ProcessorParkScenario(ParkerModel model, Forgets what, bool few)
      : os(model), forgets(what), message_count(few ? 1 : 4), stops(!few) {
    table.prepare(2);
  }

  void thread(int me) {
    if (me == owner) return own();
    const auto self = static_cast<std::uint32_t>(me);
    for (std::uint32_t i = 0; i < message_count; ++i) {
      if (i == 0) table.connect(self, rings[me]);
      ParkRing::Entry* entry = rings[me].prepare();
      while (entry == nullptr) {
        det::yield();
        entry = rings[me].prepare();
      }
      det::Scheduler::current()->plain_write(entry);
      entry->info = i;
      rings[me].publish();
      parker.wake_if_asleep();
    }
    if (senders.fetch_sub(1, std::memory_order_acq_rel) == 1 && stops) {
      stopping.store(true, std::memory_order_release);
      parker.wake_if_asleep();
    }
  }

  bool poll() {
    bool took = false;
    if (table.has_new()) table.refresh();
    for (const auto& [ring, from] : table.rings()) {
      while (ParkRing::Entry* entry = ring->peek()) {
        det::Scheduler::current()->plain_read(entry);
        det::check(entry->info == taken[from], "messages arrive in order");
        ++taken[from];
        ring->pop();
        took = true;
      }
      ring->settle();
    }
    return took;
  }

  void own() {
    while ((stops && !stopping.load(std::memory_order_acquire)) || taken[0] + taken[1] < 2 * message_count) {
      if (poll()) continue;
      const auto look = [this] {
        if (forgets == Forgets::to_look) return false;
        const bool some = forgets == Forgets::new_rings ? !table.all_empty() : poll() || table.has_new();
        return some || (forgets != Forgets::the_stop && stopping.load(std::memory_order_acquire));
      };
      sleep_unless(parker, false, look, [this] { parker.sleep(std::chrono::nanoseconds(std::chrono::seconds(1))); });
    }
  }

  ParkerModel os;
  Forgets forgets;
  std::uint32_t message_count;
  bool stops;
  Parker<det::DetAtomic, ParkerModel> parker{os};
  RingTable<ParkRing, det::DetAtomic> table;
  ParkRing rings[2];
  std::uint32_t taken[2]{};
  det::DetAtomic<int> senders{2};
  det::DetAtomic<bool> stopping{false};
};

using Forgets = ProcessorParkScenario::Forgets;

det::Outcome park_processor(std::uint64_t seeds, det::Memory memory, ParkerModel os, Forgets forgets, bool few) {
  return det::explore_with(seeds, {.memory = memory},
                           [=] { return std::make_unique<ProcessorParkScenario>(os, forgets, few); });
}

// A wait that times out is a lost wake-up.
TEST(ProcessorPark, MissesNeitherMessagesNorNewRingsNorTheStop) {
  const std::uint64_t seeds = testing_support::scaled(10'000, 10, 10);
  for (const det::Memory memory : {det::Memory::tso, det::Memory::weak}) {
    for (const bool few : {true, false}) {
      const det::Outcome outcome = park_processor(seeds, memory, {}, Forgets::nothing, few);
      EXPECT_TRUE(outcome.ok) << outcome.failure;
    }
  }
}

TEST(ProcessorPark, WithoutAnyOneOfItsLooksLosesAWake) {
  for (const Forgets forgets : {Forgets::new_rings, Forgets::the_stop, Forgets::to_look}) {
    const bool few = forgets == Forgets::new_rings;
    EXPECT_FALSE(park_processor(10'000, det::Memory::weak, {}, forgets, few).ok) << static_cast<int>(forgets);
  }
  const ParkerModel without_fence{.fault = ParkerFault::no_sleeper_fence};
  EXPECT_FALSE(park_processor(10'000, det::Memory::weak, without_fence, Forgets::nothing, true).ok);
}

}  // namespace
}  // namespace aplib
