// SPDX-License-Identifier: MIT
// MatchQueue against a simple model: a list that is scanned from its start. Random histories by seed (TEST_SEED).
#include "cell/matching.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

namespace aplib {
namespace {

struct Entry {
  Entry* next = nullptr;
  Entry* previous = nullptr;
  Entry* bucket_next = nullptr;
  Entry* bucket_previous = nullptr;
  std::uint64_t key = 0;
  std::uint64_t number = 0;  // order of arrival
};

struct Model {
  std::list<Entry*> entries;

  Entry* find(const MatchWish& wish) {
    for (Entry* entry : entries) {
      const bool same_space = ((entry->key ^ wish.key) & wish.mask & MatchKey::space_mask) == 0;
      const auto field = [&](std::uint64_t mask) {
        return (wish.mask & mask) == 0 || (entry->key & mask) == (wish.key & mask);
      };
      if (same_space && field(MatchKey::cell_mask) && field(MatchKey::task_mask) && field(MatchKey::type_mask))
        return entry;
    }
    return nullptr;
  }
};

struct Habits {
  const char* name;
  std::uint32_t cell_count;
  std::uint32_t task_count;
  std::uint32_t type_count;
  unsigned arrivals_of_ten;  // per ten steps, while the queue grows
  std::size_t turn_at;       // the queue grows to this length, then shrinks to nothing, repeatedly
};

std::uint64_t first_seed() {
  const char* text = std::getenv("TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 1;
}

class MatchQueueHistories : public testing::TestWithParam<Habits> {};

TEST_P(MatchQueueHistories, AgreeWithTheModel) {
  const Habits& habits = GetParam();
  constexpr std::uint64_t seed_count = 20;
  constexpr int step_count = 4000;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seed_count; ++seed) {
    SCOPED_TRACE(testing::Message() << "TEST_SEED=" << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) { return random() % limit; };
    const auto random_key = [&] {
      return MatchKey::make(below(4) == 0 ? 7 : 0, static_cast<std::uint32_t>(below(habits.cell_count)),
                            static_cast<std::uint32_t>(below(habits.task_count)),
                            static_cast<std::uint32_t>(below(habits.type_count)));
    };
    std::vector<MatchWish> wishes;  // asked before: who asks again goes on where the wish has been
    const auto random_wish = [&] {
      if (!wishes.empty() && below(4) != 0) return wishes[below(wishes.size())];
      MatchWish wish{random_key(), MatchKey::space_mask};
      for (const std::uint64_t mask : {MatchKey::cell_mask, MatchKey::task_mask, MatchKey::type_mask}) {
        if (below(2) == 0) wish.mask |= mask;
      }
      if (wishes.size() < 12) wishes.push_back(wish);
      return wish;
    };
    MatchQueue<Entry> queue;
    Model model;
    std::vector<std::unique_ptr<Entry>> storage;
    std::uint64_t arrived = 0;
    bool growing = true;
    std::size_t longest = 0;
    for (int step = 0; step < step_count; ++step) {
      if (model.entries.size() >= habits.turn_at) growing = false;
      if (model.entries.empty()) growing = true;
      const std::uint64_t die = below(10);
      if (die < (growing ? habits.arrivals_of_ten : 10 - habits.arrivals_of_ten)) {
        storage.push_back(std::make_unique<Entry>());
        Entry& entry = *storage.back();
        entry.key = random_key();
        entry.number = ++arrived;
        queue.push(entry);
        model.entries.push_back(&entry);
      } else if (die == 9 && !model.entries.empty()) {  // cancels one in the middle
        auto victim = model.entries.begin();
        std::advance(victim, static_cast<std::ptrdiff_t>(below(model.entries.size())));
        queue.remove(**victim);
        model.entries.erase(victim);
      } else {
        const MatchWish wish = random_wish();
        Entry* const expected = model.find(wish);
        ASSERT_EQ(queue.find(wish), expected);
        if (below(3) != 0) {
          ASSERT_EQ(queue.take(wish), expected);
          if (expected != nullptr) model.entries.remove(expected);
        }
      }
      ASSERT_EQ(queue.size(), model.entries.size());
      ASSERT_EQ(queue.empty(), model.entries.empty());
      ASSERT_EQ(queue.oldest(), model.entries.empty() ? nullptr : model.entries.front());
      longest = std::max(longest, model.entries.size());
    }
    if (habits.turn_at > MatchQueue<Entry>::index_from) {
      EXPECT_GT(longest, MatchQueue<Entry>::index_from) << "the history never reached the index";
    }
    while (Entry* entry = queue.take(MatchWish{})) {  // drains in order of arrival
      ASSERT_EQ(entry, model.entries.front());
      model.entries.pop_front();
    }
    ASSERT_TRUE(model.entries.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(, MatchQueueHistories,
                         testing::Values(Habits{"short_queues", 4, 2, 3, 6, 12},
                                         Habits{"around_the_index", 8, 2, 4, 6, 40},
                                         Habits{"long_queues", 64, 2, 4, 9, 400},
                                         Habits{"cells_that_share_buckets", 300, 1, 2, 9, 300},
                                         Habits{"one_cell", 1, 3, 50, 9, 300},
                                         Habits{"the_widest_keys", 1U << 17U, 1U << 20U, 1U << 24U, 9, 200}),
                         [](const auto& info) { return std::string(info.param.name); });

/// A key that counts how often it is looked at.
struct CountedKey {
  operator std::uint64_t() const {
    ++looks;
    return key;
  }
  std::uint64_t key = 0;
  static inline std::uint64_t looks = 0;
};
struct CountedEntry {
  CountedEntry* next = nullptr;
  CountedEntry* previous = nullptr;
  CountedEntry* bucket_next = nullptr;
  CountedEntry* bucket_previous = nullptr;
  CountedKey key;
};

// Each look for what comes last must not pass all over that came first and nobody has asked for.
TEST(MatchQueue, AWishThatIsAskedAgainGoesOnWhereItHasBeen) {
  constexpr std::uint32_t unasked = 20'000;
  constexpr std::uint32_t asked = 2'000;
  constexpr std::uint64_t looks_per_message_max = 20;
  const std::uint64_t type_and_space = MatchKey::space_mask | MatchKey::type_mask;
  for (const std::uint64_t mask : {type_and_space, type_and_space | MatchKey::cell_mask, MatchKey::task_mask}) {
    std::vector<CountedEntry> entries(unasked + asked);
    MatchQueue<CountedEntry> queue;
    for (std::uint32_t i = 0; i < unasked; ++i) {
      entries[i].key.key = MatchKey::make(0, 5, 1, 1);
      queue.push(entries[i]);
    }
    const auto key_of = [](std::uint32_t n) { return MatchKey::make(0, 5, 2 + n % 3, 2 + n % 3); };
    CountedKey::looks = 0;
    for (std::uint32_t n = 0; n < asked; ++n) {  // three wishes in turn
      EXPECT_EQ(queue.take({key_of(n), mask}), nullptr);
      entries[unasked + n].key.key = key_of(n);
      queue.push(entries[unasked + n]);
      EXPECT_EQ(queue.take({key_of(n), mask}), &entries[unasked + n]);
    }
    EXPECT_LT(CountedKey::looks, 3 * unasked + asked * looks_per_message_max);
    for (std::uint32_t i = 0; i < unasked; ++i) EXPECT_EQ(queue.take(MatchWish{}), &entries[i]);
    EXPECT_TRUE(queue.empty());
  }
}

TEST(MatchKey, FieldsDoNotOverlap) {
  EXPECT_EQ(MatchKey::space_mask ^ MatchKey::cell_mask ^ MatchKey::task_mask ^ MatchKey::type_mask, ~std::uint64_t{0});
  const std::uint64_t key =
      MatchKey::make(7, cell_count_max, task_id_max, static_cast<std::uint32_t>(message_type_max));
  EXPECT_EQ(MatchKey::cell(key), cell_count_max);  // the host of the largest machine
  EXPECT_EQ(MatchKey::task(key), task_id_max);
  EXPECT_EQ(MatchKey::type(key), static_cast<std::uint32_t>(message_type_max));
}

}  // namespace
}  // namespace aplib
