// SPDX-License-Identifier: MIT
// Bodies in memory that processes share: nothing lies where something else does, what is given back is used again, and
// what another process writes there breaks nothing.
#include "memory/body_arena.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using testing_support::scaled;

constexpr std::size_t unit = BodyArena::unit_bytes;
constexpr std::uint32_t units = BodyArena::unit_count - 1;  // for bodies

/// Each unit has bytes of its own.
std::vector<std::byte> filled(std::size_t bytes, std::uint32_t with) {
  std::vector<std::byte> body(bytes);
  for (std::size_t at = 0; at < bytes; at += unit)
    std::memset(&body[at], static_cast<int>((at / unit * 7 + with) & 0xff), std::min(unit, bytes - at));
  return body;
}

/// The owner's arena, and the same as another process has it.
struct Both {
  std::unique_ptr<LendingArena> owner = LendingArena::make();
  std::unique_ptr<BodyArena> borrower = BodyArena::open(*owner->place());

  void expect(std::uint32_t number, const std::vector<std::byte>& body) const {
    const char* const place = borrower->find(number, body.size());
    ASSERT_NE(place, nullptr);
    EXPECT_EQ(std::memcmp(place, body.data(), body.size()), 0);
  }
};

TEST(BodyArena, TheBorrowerSeesTheBody) {
  const Both both;
  ASSERT_NE(both.borrower, nullptr);
  for (const std::size_t bytes : {std::size_t{1}, unit - 1, unit, unit + 1, 10 * unit, units * unit}) {
    const auto body = filled(bytes, 3);
    const std::uint32_t number = both.owner->lend(body);
    ASSERT_NE(number, 0U) << bytes;
    both.expect(number, body);
    both.borrower->give_back(number);
  }
  EXPECT_FALSE(both.owner->is_deceived());
}

TEST(BodyArena, WhatWasGivenBackLastIsUsedNext) {
  const Both both;
  const auto body = filled(3 * unit, 1);
  const std::uint32_t kept = both.owner->lend(body);
  const std::uint32_t number = both.owner->lend(body);
  for (int i = 0; i < 100; ++i) {
    both.borrower->give_back(number);
    ASSERT_EQ(both.owner->lend(body), number);
  }
  both.expect(kept, body);
}

TEST(BodyArena, AFullOneTakesNoMoreUntilSomethingIsGivenBack) {
  const Both both;
  const auto body = filled(unit, 1);
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < units; ++i) numbers.push_back(both.owner->lend(body));
  std::ranges::sort(numbers);
  EXPECT_NE(numbers.front(), 0U);
  EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end());
  EXPECT_EQ(both.owner->lend(body), 0U);
  both.borrower->give_back(numbers[1000]);
  both.borrower->give_back(numbers[1002]);
  EXPECT_EQ(both.owner->lend(filled(2 * unit, 1)), 0U) << "they do not lie side by side";
  both.borrower->give_back(numbers[1001]);
  EXPECT_EQ(both.owner->lend(filled(3 * unit, 1)), numbers[1000]);
  for (const std::uint32_t number : numbers) {
    if (number != numbers[1001] && number != numbers[1002]) both.borrower->give_back(number);
  }
  EXPECT_NE(both.owner->lend(filled(units * unit, 1)), 0U) << "what was taken one by one is one again";
  EXPECT_FALSE(both.owner->is_deceived());
}

TEST(BodyArena, WhatDoesNotFitAtAllIsRefused) {
  const Both both;
  EXPECT_EQ(both.owner->lend(filled(units * unit + 1, 1)), 0U);
  EXPECT_EQ(both.owner->lend(filled(2 * BodyArena::bytes, 1)), 0U);
  EXPECT_EQ(both.owner->lend({}), 0U);
}

TEST(BodyArena, WhatIsTakenBackCanBeLentAgain) {
  const Both both;
  const auto body = filled(units * unit, 1);
  const std::uint32_t number = both.owner->lend(body);
  both.owner->take_back(number, body.size());
  EXPECT_EQ(both.owner->lend(body), number);
}

TEST(BodyArena, ThousandsOfBodiesInAnyOrderStayWhole) {
  const Both both;
  std::mt19937 random(20261122);
  struct Lent {
    std::uint32_t number;
    std::vector<std::byte> body;
  };
  std::vector<Lent> lent;
  std::size_t refused = 0;
  for (std::uint64_t i = 0; i < scaled(20'000, 4, 1); ++i) {
    if (lent.empty() || random() % 5 < 3) {
      const std::size_t bytes = 1 + random() % (random() % 8 == 0 ? 100 * unit : 3 * unit);
      std::vector<std::byte> body(bytes, static_cast<std::byte>(i));
      const std::uint32_t number = both.owner->lend(body);
      number == 0 ? static_cast<void>(++refused) : lent.push_back({number, std::move(body)});
    } else {
      std::swap(lent[random() % lent.size()], lent.back());
      both.expect(lent.back().number, lent.back().body);
      both.borrower->give_back(lent.back().number);
      lent.pop_back();
    }
  }
  EXPECT_GT(refused, 0U);
  EXPECT_FALSE(both.owner->is_deceived());
}

// One mapping for all, so that ThreadSanitizer sees what they share.
TEST(BodyArena, ManyThreadsLendAndGiveBack) {
  const std::unique_ptr<LendingArena> arena = LendingArena::make();
  ASSERT_NE(arena, nullptr);
  constexpr auto count = static_cast<std::uint32_t>(scaled(4000, 8, 1));
  std::mutex mutex;
  std::deque<std::uint32_t> on_the_way;
  std::atomic<std::uint32_t> taken{0};
  const auto lend = [&](std::uint32_t with) {
    const std::vector<std::byte> body(2 * unit + with, static_cast<std::byte>(with));
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t number = 0;
      while ((number = arena->lend(body)) == 0) std::this_thread::yield();
      const std::lock_guard hold(mutex);
      on_the_way.push_back(number);
    }
  };
  const auto give_back = [&] {
    while (taken.load() < 2 * count) {
      std::uint32_t number = 0;
      {
        const std::lock_guard hold(mutex);
        if (on_the_way.empty()) {
          std::this_thread::yield();
          continue;
        }
        number = on_the_way.front();
        on_the_way.pop_front();
      }
      ++taken;
      const char* const body = arena->find(number, 2 * unit);
      EXPECT_EQ(body[0], body[2 * unit - 1]);
      EXPECT_TRUE(body[0] == 1 || body[0] == 2);
      arena->give_back(number);
    }
  };
  std::vector<std::thread> threads;
  for (const std::uint32_t with : {1U, 2U}) threads.emplace_back(lend, with);
  for (int i = 0; i < 2; ++i) threads.emplace_back(give_back);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(arena->is_deceived());
  EXPECT_NE(arena->lend(filled(units * unit, 1)), 0U) << "all is back";
}

TEST(BodyArena, BodiesThatCannotBeThereAreNotFound) {
  const Both both;
  const BodyArena& arena = *both.borrower;
  EXPECT_EQ(arena.find(0, 1), nullptr) << "the links";
  EXPECT_EQ(arena.find(BodyArena::unit_count, 1), nullptr);
  EXPECT_EQ(arena.find(~std::uint64_t{0}, 1), nullptr);
  EXPECT_EQ(arena.find(std::uint64_t{1} << 32 | 1, 1), nullptr);
  EXPECT_EQ(arena.find(units, unit + 1), nullptr);
  EXPECT_EQ(arena.find(1, units * unit + 1), nullptr);
  EXPECT_EQ(arena.find(1, ~std::uint64_t{0}), nullptr);
  EXPECT_NE(arena.find(units, unit), nullptr);
  EXPECT_NE(arena.find(1, units * unit), nullptr);
}

TEST(BodyArena, WhatWasNeverLentCannotBeGivenBack) {
  const auto deceived_by = [](const std::function<void(BodyArena & arena, std::uint32_t lent)>& trick) {
    const Both both;
    const auto body = filled(2 * unit, 5);
    const std::uint32_t kept = both.owner->lend(body);
    const std::uint32_t lent = both.owner->lend(body);
    trick(*both.borrower, lent);
    std::vector<std::uint32_t> numbers{kept};
    for (int i = 0; i < 100; ++i) numbers.push_back(both.owner->lend(filled(unit, 9)));
    std::ranges::sort(numbers);
    EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end());
    both.expect(kept, body);
    return both.owner->is_deceived();
  };
  EXPECT_FALSE(deceived_by([](BodyArena& arena, std::uint32_t lent) { arena.give_back(lent); }));
  EXPECT_TRUE(deceived_by([](BodyArena& arena, std::uint32_t lent) { arena.give_back(lent + 1); })) << "its middle";
  EXPECT_TRUE(deceived_by([](BodyArena& arena, std::uint32_t) { arena.give_back(units); }));
  EXPECT_TRUE(deceived_by([](BodyArena& arena, std::uint32_t lent) {
    arena.give_back(lent);
    arena.give_back(lent);
  })) << "a circle";
  const auto first_link = [](BodyArena& arena) {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(arena.find(1, 1) - unit);
  };
  EXPECT_TRUE(deceived_by([&](BodyArena& arena, std::uint32_t) { *first_link(arena) = BodyArena::unit_count; }));
  EXPECT_TRUE(deceived_by([&](BodyArena& arena, std::uint32_t) { *first_link(arena) = ~0U; }));
  EXPECT_TRUE(deceived_by([&](BodyArena& arena, std::uint32_t lent) {
    arena.give_back(lent);
    first_link(arena)[lent] = ~0U;
  }));
}

TEST(BodyArena, OnlyAnArenaIsMapped) {
  const std::unique_ptr<LendingArena> arena = LendingArena::make();
  const SharedFilePlace good = *arena->place();
  EXPECT_NE(BodyArena::open(good), nullptr);
  EXPECT_EQ(BodyArena::open({good.inode + 1, good.process, good.descriptor}), nullptr) << "another file";
  EXPECT_EQ(BodyArena::open({good.inode, -1, good.descriptor}), nullptr) << "no process";
  EXPECT_EQ(BodyArena::open({good.inode, good.process, 100'000}), nullptr) << "no descriptor";
  const std::optional<SharedFile> small = SharedFile::make(BodyArena::name, BodyArena::bytes - 1);
  EXPECT_EQ(BodyArena::open(*SharedFile::place_of(small->descriptor())), nullptr) << "too small";
  const std::optional<SharedFile> other = SharedFile::make("aplib-heaps", BodyArena::bytes);
  EXPECT_EQ(BodyArena::open(*SharedFile::place_of(other->descriptor())), nullptr) << "memory for something else";
}

TEST(BodyArena, ItOutlivesItsOwner) {
  auto owner = LendingArena::make();
  const auto borrower = BodyArena::open(*owner->place());
  const auto body = filled(unit, 4);
  const std::uint32_t number = owner->lend(body);
  owner = nullptr;
  const char* const place = borrower->find(number, unit);
  EXPECT_TRUE(std::equal(body.begin(), body.end(), reinterpret_cast<const std::byte*>(place)));
  borrower->give_back(number);
}

class Limit {
 public:
  Limit(int resource, rlim_t value) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit now{value, before_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &now), 0);
  }
  ~Limit() { setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  int resource_;
  rlimit before_{};
};

TEST(BodyArena, WhereLimitsForbidItThereIsNone) {
  {
    const Limit files(RLIMIT_NOFILE, 3);
    EXPECT_EQ(LendingArena::make(), nullptr);
  }
  {
    const Limit file_size(RLIMIT_FSIZE, BodyArena::bytes - 1);
    EXPECT_EQ(LendingArena::make(), nullptr);
  }
  EXPECT_NE(LendingArena::make(), nullptr);
}

}  // namespace
}  // namespace aplib
