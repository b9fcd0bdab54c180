// SPDX-License-Identifier: MIT
// The deterministic scheduler finds lost wake-ups, in small correct and broken parkers.
#include <gtest/gtest.h>

#include "det/explore.hpp"

namespace aplib::det {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto seq_cst = std::memory_order_seq_cst;

enum class Fault {
  none,
  no_second_look,    // the sleeper announces itself and sleeps without looking for work again
  no_sleeper_fence,  // between announcing and looking again
  no_waker_fence,    // between giving work and looking for a sleeper
};

// Work is counted in `work`; a sleeper sets `asleep` to 1 and waits while it stays so.
struct Parking {
  static constexpr int thread_count = 2;
  static constexpr int rounds = 4;

  explicit Parking(Fault which) : fault(which) {}

  void sleeper_fence() const {
    if (fault != Fault::no_sleeper_fence) fence(seq_cst);
  }

  void waker_fence() const {
    if (fault != Fault::no_waker_fence) fence(seq_cst);
  }

  void thread(int me) {
    if (me == 0) {
      for (int i = 0; i < rounds; ++i) {
        work.fetch_add(1, release);
        waker_fence();
        if (asleep.load(relaxed) == 1) {
          asleep.store(0, relaxed);
          futex_wake(asleep, 1);
        }
      }
      return;
    }
    int done = 0;
    while (done < rounds) {
      if (work.load(acquire) > done) {
        ++done;
        continue;
      }
      asleep.store(1, relaxed);
      sleeper_fence();
      if (fault == Fault::no_second_look || work.load(acquire) == done) {
        while (asleep.load(relaxed) == 1) futex_wait(asleep, 1);
      }
      asleep.store(0, relaxed);
    }
  }

  Fault fault;
  DetAtomic<int> work{0};
  DetAtomic<std::uint32_t> asleep{0};
};

Outcome park(std::uint64_t seed_count, Memory memory, Fault fault) {
  return explore_with(seed_count, {.memory = memory, .spurious_wakes = false},
                      [=] { return std::make_unique<Parking>(fault); });
}

TEST(DetParker, ARightOneNeverLosesAWakeUp) {
  for (const Memory memory : {Memory::interleaving, Memory::tso, Memory::weak}) {
    const Outcome outcome = park(4000, memory, Fault::none);
    EXPECT_TRUE(outcome.ok) << outcome.failure;
  }
}

TEST(DetParker, SleepingWithoutASecondLookIsFoundEvenWithoutStaleValues) {
  for (const Memory memory : {Memory::interleaving, Memory::tso, Memory::weak}) {
    const Outcome outcome = park(300, memory, Fault::no_second_look);
    EXPECT_FALSE(outcome.ok);
    EXPECT_NE(outcome.failure.find("deadlock (a lost wake-up?)"), std::string::npos) << outcome.failure;
  }
}

TEST(DetParker, AMissingFenceOnEitherSideIsFound) {
  for (const Memory memory : {Memory::tso, Memory::weak}) {
    for (const Fault fault : {Fault::no_sleeper_fence, Fault::no_waker_fence}) {
      if (memory == Memory::tso && fault == Fault::no_waker_fence) continue;  // x86: the waker's fetch_add is a fence
      const Outcome outcome = park(2000, memory, fault);
      EXPECT_FALSE(outcome.ok) << static_cast<int>(fault);
      EXPECT_NE(outcome.failure.find("deadlock (a lost wake-up?)"), std::string::npos) << outcome.failure;
    }
  }
}

struct TimedWait {
  static constexpr int thread_count = 1;
  void thread(int) { result = futex_wait(word, 0, std::chrono::milliseconds(5)); }
  void finish() { EXPECT_EQ(result, Scheduler::Wait::timed_out); }
  DetAtomic<std::uint32_t> word{0};
  Scheduler::Wait result{};
};

TEST(DetParker, TimePassesWhenNobodyElseCanGoOn) {
  const Outcome fine = explore<TimedWait>(1, {.timeouts_fail = false, .spurious_wakes = false});
  EXPECT_TRUE(fine.ok) << fine.failure;
  EXPECT_EQ(fine.timeout_count, 1U);
  EXPECT_FALSE((explore<TimedWait>(1, {.spurious_wakes = false}).ok));
}

}  // namespace
}  // namespace aplib::det
