// SPDX-License-Identifier: MIT
// The classic litmus tests: the deterministic scheduler shows the outcomes that the C++ memory model allows, and no
// others.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <tuple>

#include "det/explore.hpp"

namespace aplib::det {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto seq_cst = std::memory_order_seq_cst;

using Seen = std::set<std::tuple<int, int>>;

// Runs the scenario of `make(seen)` with many seeds and collects what its threads saw.
template <class Scenario, class... Arguments>
Seen outcomes(Memory memory, Arguments... arguments) {
  Seen seen;
  const Outcome outcome =
      explore_with(2000, {.memory = memory}, [&] { return std::make_unique<Scenario>(seen, arguments...); });
  EXPECT_TRUE(outcome.ok) << outcome.failure;
  return seen;
}

// x = 1; r0 = y  beside  y = 1; r1 = x
struct StoreBuffering {
  enum class With { relaxed, acquire_release, seq_cst, fences, update };
  static constexpr int thread_count = 2;
  StoreBuffering(Seen& all, With how) : seen(all), with(how) {}
  void thread(int me) {
    DetAtomic<int>& mine = me == 0 ? x : y;
    DetAtomic<int>& other = me == 0 ? y : x;
    if (with == With::update) {
      mine.exchange(1, seq_cst);
    } else {
      mine.store(1, with == With::seq_cst ? seq_cst : with == With::acquire_release ? release : relaxed);
    }
    if (with == With::fences) fence(seq_cst);
    read.at(static_cast<std::size_t>(me)) = other.load(with == With::seq_cst || with == With::update ? seq_cst
                                                       : with == With::acquire_release               ? acquire
                                                                                                     : relaxed);
  }
  void finish() { seen.emplace(read[0], read[1]); }
  Seen& seen;
  With with;
  DetAtomic<int> x{0}, y{0};
  std::array<int, 2> read{};
};

TEST(DetModel, StoreBufferingShowsBothOldValuesUntilAFenceForbidsIt) {
  using With = StoreBuffering::With;
  const std::tuple<int, int> both_old{0, 0};
  EXPECT_FALSE(outcomes<StoreBuffering>(Memory::interleaving, With::relaxed).contains(both_old));
  for (const Memory memory : {Memory::tso, Memory::weak}) {
    EXPECT_TRUE(outcomes<StoreBuffering>(memory, With::relaxed).contains(both_old));
    EXPECT_TRUE(outcomes<StoreBuffering>(memory, With::acquire_release).contains(both_old));
    for (const With with : {With::seq_cst, With::fences, With::update}) {
      const Seen seen = outcomes<StoreBuffering>(memory, with);
      EXPECT_FALSE(seen.contains(both_old)) << static_cast<int>(with);
      EXPECT_EQ(seen.size(), 3U) << static_cast<int>(with);
    }
  }
}

// data = 1; flag = 1  beside  r0 = flag; r1 = data
struct MessagePassing {
  static constexpr int thread_count = 2;
  MessagePassing(Seen& all, std::memory_order store, std::memory_order load, bool with_fences)
      : seen(all), store_order(store), load_order(load), fences(with_fences) {}
  void thread(int me) {
    if (me == 0) {
      data.store(1, relaxed);
      if (fences) fence(release);
      flag.store(1, store_order);
    } else {
      flag_read = flag.load(load_order);
      if (fences) fence(acquire);
      data_read = data.load(relaxed);
    }
  }
  void finish() { seen.emplace(flag_read, data_read); }
  Seen& seen;
  std::memory_order store_order, load_order;
  bool fences;
  DetAtomic<int> data{0}, flag{0};
  int flag_read = 0, data_read = 0;
};

TEST(DetModel, MessagePassingNeedsReleaseAndAcquire) {
  const std::tuple<int, int> flag_without_data{1, 0};
  EXPECT_TRUE(outcomes<MessagePassing>(Memory::weak, relaxed, relaxed, false).contains(flag_without_data));
  EXPECT_TRUE(outcomes<MessagePassing>(Memory::weak, release, relaxed, false).contains(flag_without_data));
  EXPECT_TRUE(outcomes<MessagePassing>(Memory::weak, relaxed, acquire, false).contains(flag_without_data));
  EXPECT_FALSE(outcomes<MessagePassing>(Memory::weak, release, acquire, false).contains(flag_without_data));
  EXPECT_FALSE(outcomes<MessagePassing>(Memory::weak, relaxed, relaxed, true).contains(flag_without_data));
  EXPECT_FALSE(outcomes<MessagePassing>(Memory::tso, relaxed, relaxed, false).contains(flag_without_data));
}

// Two readers of one location must agree on its order: r0 = x; r1 = x beside x = 1; x = 2.
struct Coherence {
  static constexpr int thread_count = 2;
  explicit Coherence(Seen& all) : seen(all) {}
  void thread(int me) {
    if (me == 0) {
      x.store(1, relaxed);
      x.store(2, relaxed);
    } else {
      first = x.load(relaxed);
      second = x.load(relaxed);
    }
  }
  void finish() { seen.emplace(first, second); }
  Seen& seen;
  DetAtomic<int> x{0};
  int first = 0, second = 0;
};

TEST(DetModel, OneLocationNeverGoesBack) {
  EXPECT_EQ(outcomes<Coherence>(Memory::weak), (Seen{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}}));
}

struct Counting {
  static constexpr int thread_count = 4;
  static constexpr int rounds = 20;
  void thread(int me) {
    for (int i = 0; i < rounds; ++i) {
      if (me % 2 == 0) {
        counter.fetch_add(1, relaxed);
      } else {
        std::uint64_t seen = counter.load(relaxed);
        while (!counter.compare_exchange_weak(seen, seen + 1, relaxed)) {
        }
      }
    }
  }
  void finish() { EXPECT_EQ(counter.load(), static_cast<std::uint64_t>(thread_count * rounds)); }
  DetAtomic<std::uint64_t> counter{0};
};

TEST(DetModel, UpdatesAreNeverLost) {
  const Outcome outcome = explore<Counting>(300);
  EXPECT_TRUE(outcome.ok) << outcome.failure;
}

// A release sequence: the reader of a relaxed update that follows a release store still acquires it.
struct ReleaseSequence {
  static constexpr int thread_count = 3;
  void thread(int me) {
    if (me == 0) {
      value.write(7);
      flag.store(1, release);
    } else if (me == 1) {
      int one = 1;
      flag.compare_exchange_strong(one, 2, relaxed);
    } else if (flag.load(acquire) == 2) {
      check(value.read() == 7, "reads what was written");
    }
  }
  DetAtomic<int> flag{0};
  DetPlain<int> value;
};

TEST(DetModel, RelaxedUpdatesContinueAReleaseSequence) {
  const Outcome outcome = explore<ReleaseSequence>(3000);
  EXPECT_TRUE(outcome.ok) << outcome.failure;
}

struct Racing {
  static constexpr int thread_count = 2;
  explicit Racing(std::memory_order order) : store_order(order) {}
  void thread(int me) {
    if (me == 0) {
      value.write(7);
      flag.store(true, store_order);
    } else if (flag.load(acquire)) {
      check(value.read() == 7, "reads what was written");
    }
  }
  std::memory_order store_order;
  DetAtomic<bool> flag{false};
  DetPlain<int> value;
};

TEST(DetModel, PlainMemoryThatNothingOrdersIsARace) {
  const Outcome racing = explore_with(100, {}, [] { return std::make_unique<Racing>(relaxed); });
  EXPECT_FALSE(racing.ok);
  EXPECT_NE(racing.failure.find("data race: reads"), std::string::npos) << racing.failure;
  const Outcome ordered = explore_with(2000, {}, [] { return std::make_unique<Racing>(release); });
  EXPECT_TRUE(ordered.ok) << ordered.failure;
}

TEST(DetModel, ASeedRepeatsItsRun) {
  const Outcome first = explore_with(100, {}, [] { return std::make_unique<Racing>(relaxed); });
  const Outcome again = explore_with(1, {.first_seed = first.seed}, [] { return std::make_unique<Racing>(relaxed); });
  EXPECT_FALSE(again.ok);
  EXPECT_EQ(first.step_count, again.step_count);
}

struct Spinning {
  static constexpr int thread_count = 2;
  void thread(int me) {
    while (word.load(relaxed) != 1) {
      if (me == 2) return;
    }
  }
  DetAtomic<int> word{0};
};

TEST(DetModel, ALoopThatNeverEndsIsALivelock) {
  const Outcome outcome = explore_with(1, {.step_count_max = 2000}, [] { return std::make_unique<Spinning>(); });
  EXPECT_FALSE(outcome.ok);
  EXPECT_NE(outcome.failure.find("livelock"), std::string::npos) << outcome.failure;
}

}  // namespace
}  // namespace aplib::det
