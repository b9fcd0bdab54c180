// SPDX-License-Identifier: MIT
// The ring under the deterministic scheduler and with real threads.
#include "cell/ring.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "det/explore.hpp"
#include "det/weakened.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

template <template <class> class Atom>
struct RingScenario {
  static constexpr int thread_count = 2;
  static constexpr std::uint32_t message_count = 40;
  using TestedRing = Ring<Atom, 8>;

  void thread(int me) {
    if (me == 0) {
      produce();
    } else {
      consume();
    }
  }

  void produce() {
    for (std::uint32_t i = 0; i < message_count; ++i) {
      auto* entry = ring.prepare();
      while (entry == nullptr) {
        det::yield();
        entry = ring.prepare();
      }
      det::Scheduler::current()->plain_write(entry);  // finds races with a consumer that still reads
      entry->info = i;
      entry->key = i * 3ULL;
      ring.publish();
      const std::uint32_t position = i + 1;
      det::check(ring.produced() == position, "positions count published entries");
      const std::uint32_t asked = position - i % 5;
      if (ring.consumed_up_to(asked) && asked > 0) {
        det::check(det::Scheduler::current()->happened_before(consumed_at[asked - 1]),
                   "consumed_up_to orders what the consumer did before");
      }
    }
  }

  void consume() {
    for (std::uint32_t i = 0; i < message_count; ++i) {
      auto* entry = ring.peek();
      while (entry == nullptr) {
        ring.settle();
        det::yield();
        entry = ring.peek();
      }
      det::Scheduler::current()->plain_read(entry);
      det::check(entry->info == i && entry->key == i * 3ULL, "messages arrive whole and in order");
      consumed_at[i] = det::Scheduler::current()->stamp();
      ring.pop();
    }
    ring.settle();
  }

  void finish() {
    EXPECT_EQ(ring.peek(), nullptr);
    EXPECT_TRUE(ring.consumed_up_to(message_count));
  }

  TestedRing ring;
  det::Stamp consumed_at[message_count];
};

TEST(Ring, KeepsOrderAndContentUnderEverySeed) {
  const std::uint64_t seeds = testing_support::scaled(3000, 4, 1);
  for (const det::Memory memory : {det::Memory::interleaving, det::Memory::tso, det::Memory::weak}) {
    const det::Outcome outcome = det::explore<RingScenario<det::DetAtomic>>(seeds, {.memory = memory});
    EXPECT_TRUE(outcome.ok) << outcome.failure;
  }
}

TEST(Ring, IsCaughtWithoutItsMemoryOrders) {
  const det::Outcome no_release = det::explore<RingScenario<det::WithoutRelease>>(200);
  EXPECT_NE(no_release.failure.find("data race"), std::string::npos) << no_release.failure;
  const det::Outcome no_acquire = det::explore<RingScenario<det::WithoutAcquire>>(200);
  EXPECT_NE(no_acquire.failure.find("data race"), std::string::npos) << no_acquire.failure;
}

TEST(Ring, ASlotIsOneCacheLine) {
  EXPECT_EQ(sizeof(Ring<>::Entry), cache_line_bytes);
  EXPECT_EQ(alignof(Ring<>::Entry), cache_line_bytes);
}

TEST(Ring, RefusesWhenFullAndTakesAgainAfterBatchesGivenBack) {
  auto ring = std::make_unique<Ring<std::atomic, 8>>();
  for (std::uint32_t i = 0; i < 8; ++i) {
    auto* entry = ring->prepare();
    ASSERT_NE(entry, nullptr);
    entry->info = i;
    ring->publish();
  }
  EXPECT_EQ(ring->prepare(), nullptr);
  ASSERT_NE(ring->peek(), nullptr);
  ring->pop();
  EXPECT_EQ(ring->prepare(), nullptr);  // one entry is less than a batch
  ring->settle();
  EXPECT_NE(ring->prepare(), nullptr);
  for (std::uint32_t i = 1; i < 8; ++i) {
    ASSERT_NE(ring->peek(), nullptr);
    EXPECT_EQ(ring->peek()->info, i);
    ring->pop();
  }
  EXPECT_EQ(ring->peek(), nullptr);
}

// Two threads, with the ring full and empty in turn. Where they share a core, each few messages cost a switch, and on a
// busy computer a time slice of all others.
TEST(Ring, CarriesManyMessagesBetweenThreads) {
  constexpr std::uint64_t message_count = testing_support::scaled(100'000, 5);
  auto ring = std::make_unique<Ring<std::atomic, 16>>();
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < message_count;) {
      auto* entry = ring->prepare();
      if (entry == nullptr) {
        std::this_thread::yield();
        continue;
      }
      entry->key = i;
      entry->info = static_cast<std::uint32_t>(i * 7);
      std::memcpy(entry->payload, &i, sizeof i);
      ring->publish();
      ++i;
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < message_count;) {
    auto* entry = ring->peek();
    if (entry == nullptr) {
      ring->settle();
      std::this_thread::yield();
      continue;
    }
    std::uint64_t body = 0;
    std::memcpy(&body, entry->payload, sizeof body);
    if (entry->key != i || body != i || entry->info != static_cast<std::uint32_t>(i * 7)) ++wrong;
    ring->pop();
    ++i;
  }
  producer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(ring->peek(), nullptr);
}

}  // namespace
}  // namespace aplib
