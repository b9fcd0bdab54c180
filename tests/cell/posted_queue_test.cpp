// SPDX-License-Identifier: MIT
// PostedQueue against a simple model: a list that is scanned from its start. Random histories by seed (TEST_SEED).
#include "cell/posted_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <list>
#include <memory>
#include <random>
#include <vector>

namespace aplib {
namespace {

struct Wished {
  MatchWish wish;
  Wished* next = nullptr;
  Wished* previous = nullptr;
  Wished* bucket_next = nullptr;
  Wished* bucket_previous = nullptr;
  std::uint64_t order = 0;
  std::uint8_t lane = 0;
};

struct PostingHabits {
  const char* name;
  std::uint32_t cell_count;
  std::uint32_t task_count;
  std::uint32_t type_count;
  bool any_masks;       // wishes name any bits, not only whole fields
  std::size_t turn_at;  // the queue grows to this length, then shrinks to nothing, repeatedly
};

class PostedQueueHistories : public testing::TestWithParam<PostingHabits> {};

TEST_P(PostedQueueHistories, AgreeWithTheModel) {
  const PostingHabits& habits = GetParam();
  constexpr std::uint64_t seed_count = 20;
  constexpr int step_count = 4000;
  const char* const text = std::getenv("TEST_SEED");
  const std::uint64_t first = text != nullptr ? std::strtoull(text, nullptr, 0) : 1;
  for (std::uint64_t seed = first; seed < first + seed_count; ++seed) {
    SCOPED_TRACE(testing::Message() << "TEST_SEED=" << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) { return random() % limit; };
    const auto random_key = [&] {
      return MatchKey::make(below(4) == 0 ? 7 : 0, static_cast<std::uint32_t>(below(habits.cell_count)),
                            static_cast<std::uint32_t>(below(habits.task_count)),
                            static_cast<std::uint32_t>(below(habits.type_count)));
    };
    PostedQueue<Wished> queue;
    std::list<Wished*> model;
    std::vector<std::unique_ptr<Wished>> storage;
    bool growing = true;
    std::size_t longest = 0;
    for (int step = 0; step < step_count; ++step) {
      if (model.size() >= habits.turn_at) growing = false;
      if (model.empty()) growing = true;
      const std::uint64_t die = below(10);
      if (die < (growing ? 7U : 2U)) {
        Wished& entry = *storage.emplace_back(std::make_unique<Wished>());
        entry.wish = {random_key(), MatchKey::space_mask};
        for (const std::uint64_t mask : {MatchKey::cell_mask, MatchKey::task_mask, MatchKey::type_mask}) {
          if (below(2) == 0) entry.wish.mask |= mask;
        }
        if (habits.any_masks) entry.wish.mask |= random() & random();
        queue.push(entry);
        model.push_back(&entry);
      } else if (die == 9 && !model.empty()) {  // cancels one in the middle
        auto victim = model.begin();
        std::advance(victim, static_cast<std::ptrdiff_t>(below(model.size())));
        queue.remove(**victim);
        model.erase(victim);
      } else {
        const std::uint64_t key = random_key();
        const auto expected = std::ranges::find_if(model, [&](const Wished* e) { return e->wish.accepts(key); });
        Wished* const found = queue.find(key);
        ASSERT_EQ(found, expected != model.end() ? *expected : nullptr);
        if (found != nullptr) {
          queue.remove(*found);
          model.erase(expected);
        }
      }
      ASSERT_EQ(queue.size(), model.size());
      ASSERT_EQ(queue.empty(), model.empty());
      ASSERT_EQ(queue.oldest(), model.empty() ? nullptr : model.front());
      longest = std::max(longest, model.size());
    }
    if (habits.turn_at > PostedQueue<Wished>::index_from) {
      EXPECT_GT(longest, PostedQueue<Wished>::index_from) << "the history never reached the index";
    }
    for (const Wished* e = queue.oldest(); e != nullptr; e = e->next) {  // in order of posting
      ASSERT_EQ(e, model.front());
      model.pop_front();
    }
    ASSERT_TRUE(model.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(, PostedQueueHistories,
                         testing::Values(PostingHabits{"short_queues", 4, 2, 3, false, 12},
                                         PostingHabits{"around_the_index", 8, 2, 4, false, 40},
                                         PostingHabits{"long_queues", 64, 2, 4, false, 400},
                                         PostingHabits{"one_cell", 1, 3, 50, false, 300},
                                         PostingHabits{"more_masks_than_lanes", 2, 2, 2, true, 200},
                                         PostingHabits{"the_widest_keys", 1U << 17U, 1U << 20U, 1U << 24U, false, 200}),
                         [](const auto& info) { return std::string(info.param.name); });

/// Counts how often a message looks at it.
struct CountedWish {
  [[nodiscard]] bool accepts(std::uint64_t key) const {
    ++looks;
    return wish.accepts(key);
  }
  MatchWish wish;
  std::uint64_t key = 0;
  std::uint64_t mask = 0;
  static inline std::uint64_t looks = 0;
};
struct CountedWished {
  CountedWish wish;
  CountedWished* next = nullptr;
  CountedWished* previous = nullptr;
  CountedWished* bucket_next = nullptr;
  CountedWished* bucket_previous = nullptr;
  std::uint64_t order = 0;
  std::uint8_t lane = 0;
};

// Whoever posts thousands, of which each names another source or type, does not pay for all with each message.
TEST(PostedQueue, AMessageLooksAtFewOfThousands) {
  constexpr std::uint32_t count = 4'000;
  constexpr std::uint64_t looks_per_message_max = 64;
  const std::uint64_t cell_and_type = MatchKey::space_mask | MatchKey::cell_mask | MatchKey::type_mask;
  for (const std::uint64_t mask : {cell_and_type, MatchKey::space_mask | MatchKey::type_mask}) {
    std::vector<CountedWished> entries(count);
    PostedQueue<CountedWished> queue;
    const auto key_of = [](std::uint32_t n) { return MatchKey::make(0, n % 100, 0, n); };
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t key = key_of(i);
      entries[i].wish = {{key, mask}, key, mask};
      queue.push(entries[i]);
    }
    CountedWish::looks = 0;
    for (std::uint32_t i = count; i-- > 0;) {  // the newest first
      ASSERT_EQ(queue.find(key_of(i)), &entries[i]);
      queue.remove(entries[i]);
    }
    EXPECT_LT(CountedWish::looks, count * looks_per_message_max);
  }
}

}  // namespace
}  // namespace aplib
