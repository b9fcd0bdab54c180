// SPDX-License-Identifier: MIT
// The deterministic scheduler finds missing memory orders, in small correct and broken rings.
#include <gtest/gtest.h>

#include <array>

#include "det/explore.hpp"

namespace aplib::det {
namespace {

enum class Fault {
  none,
  relaxed_publish,    // the producer's store of the tail does not release
  relaxed_look,       // the consumer's load of the tail does not acquire
  relaxed_give_back,  // the consumer's store of the head does not release
  one_too_many,       // the producer assumes one entry too many
};

struct Ring {
  static constexpr int thread_count = 2;
  static constexpr std::uint32_t entry_count = 4;
  static constexpr std::uint32_t message_count = 30;

  explicit Ring(Fault which) : fault(which) {}

  void thread(int me) {
    if (me == 0) {
      produce();
    } else {
      consume();
    }
  }

  void produce() {
    const std::uint32_t room = entry_count + (fault == Fault::one_too_many ? 1 : 0);
    for (std::uint32_t i = 0; i < message_count; ++i) {
      while (i - head.load(std::memory_order_acquire) >= room) yield();
      entries[i % entry_count].write(i);
      tail.store(i + 1, fault == Fault::relaxed_publish ? std::memory_order_relaxed : std::memory_order_release);
    }
  }

  void consume() {
    for (std::uint32_t i = 0; i < message_count; ++i) {
      while (tail.load(fault == Fault::relaxed_look ? std::memory_order_relaxed : std::memory_order_acquire) == i)
        yield();
      check(entries[i % entry_count].read() == i, "messages arrive in order");
      head.store(i + 1, fault == Fault::relaxed_give_back ? std::memory_order_relaxed : std::memory_order_release);
    }
  }

  Fault fault;
  DetAtomic<std::uint32_t> head{0}, tail{0};
  std::array<DetPlain<std::uint32_t>, entry_count> entries;
};

Outcome run(std::uint64_t seed_count, Fault fault, Memory memory = Memory::weak) {
  return explore_with(seed_count, {.memory = memory}, [=] { return std::make_unique<Ring>(fault); });
}

TEST(DetRing, ARightOnePassesEverySeed) {
  for (const Memory memory : {Memory::interleaving, Memory::tso, Memory::weak}) {
    const Outcome outcome = run(2000, Fault::none, memory);
    EXPECT_TRUE(outcome.ok) << outcome.failure;
  }
}

TEST(DetRing, EveryFaultFailsWithinFewSeeds) {
  for (const Fault fault :
       {Fault::relaxed_publish, Fault::relaxed_look, Fault::relaxed_give_back, Fault::one_too_many}) {
    const Outcome outcome = run(100, fault);
    EXPECT_FALSE(outcome.ok) << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace aplib::det
