// SPDX-License-Identifier: MIT
// The promises of put, get, flags and atomics, inside one process on several shapes, and between processes.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"
#include "machines.hpp"
#include "placements.hpp"
#include "shared_block.hpp"

namespace aplib {
namespace {

using testing_support::body_of;
using testing_support::cell;
using testing_support::me;
using testing_support::Placement;
using testing_support::run_on;
using testing_support::same_bytes;
using testing_support::SharedBlock;

struct Block {
  std::array<std::int32_t, 64> numbers{};
  std::array<std::int64_t, 8> wide{};
  Flag first;
  Flag second;
  std::array<std::byte, 100'000> bytes{};
};

std::uint32_t cells() { return this_machine::cell_count(); }
CellId next_cell() { return cell((me() + 1) % cells()); }
CellId last_cell() { return cell((me() + cells() - 1) % cells()); }

class OneSided : public testing::TestWithParam<Placement> {};

TEST_P(OneSided, PutArrivesWithItsFlag) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    Flag reusable;
    for (int round = 1; round <= 100; ++round) {
      put(next_cell(), static_cast<std::int32_t>(me()) + 1000 * round, &block->numbers[3],
          {.arrived = &block->first, .reusable = &reusable});
      wait_flag(block->first, round);
      EXPECT_EQ(block->numbers[3], static_cast<std::int32_t>(index(last_cell())) + 1000 * round);
      wait_flag(reusable, round);
      raise_flag(last_cell(), &block->second);  // the next round may begin
      wait_flag(block->second, round);
    }
    barrier();
  });
}

TEST_P(OneSided, GetBringsWhatIsThere) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    std::iota(block->numbers.begin(), block->numbers.end(), static_cast<std::int32_t>(me() * 100));
    barrier();
    std::array<std::int32_t, 64> mine{};
    Flag arrived;
    get(next_cell(), mine, block->numbers.data(), {.arrived = &arrived, .taken = &block->second});
    wait_flag(arrived, 1);
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_EQ(mine[i], static_cast<std::int32_t>(index(next_cell()) * 100 + i));
    wait_flag(block->second, 1);
    EXPECT_EQ(get_value(next_cell(), &block->numbers[7]), static_cast<std::int32_t>(index(next_cell()) * 100 + 7));
    barrier();
  });
}

TEST_P(OneSided, SizesFromNothingToMuch) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    int round = 0;
    for (const std::size_t size : {0U, 1U, 3U, 4U, 7U, 8U, 9U, 16U, 17U, 33U, 40U, 41U, 1000U, 20'000U, 100'000U}) {
      const std::vector<std::byte> source = body_of(size, me());
      std::fill(block->bytes.begin(), block->bytes.end(), std::byte{0xee});
      barrier();
      put(next_cell(), std::span(source), block->bytes.data(), {.arrived = &block->first});
      wait_flag(block->first, ++round);
      ASSERT_TRUE(same_bytes(std::span(block->bytes).first(size), body_of(size, index(last_cell())))) << size;
      if (size < block->bytes.size()) {
        ASSERT_EQ(block->bytes[size], std::byte{0xee});
      }
      Flag arrived;
      std::vector<std::byte> back(size);
      get(next_cell(), std::span(back), block->bytes.data(), {.arrived = &arrived});
      wait_flag(arrived, 1);
      ASSERT_TRUE(same_bytes(back, source)) << size;
      barrier();
    }
  });
}

TEST_P(OneSided, OwnCellAndOverlap) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    std::iota(block->numbers.begin(), block->numbers.end(), 0);
    put(cell(me()), std::span<const std::int32_t>(block->numbers).first(40), &block->numbers[2],
        {.arrived = &block->first});
    EXPECT_EQ(block->first.count(), 1);
    for (std::int32_t i = 0; i < 40; ++i) EXPECT_EQ(block->numbers[static_cast<std::size_t>(i) + 2], i);
    EXPECT_EQ(get_value(cell(me()), &block->numbers[5]), 3);
    barrier();
  });
}

TEST_P(OneSided, StridesOnBothSides) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    std::array<std::int32_t, 30> source{};
    std::iota(source.begin(), source.end(), static_cast<std::int32_t>(me() * 1000));
    // 5 pairs, from every third of our elements to every tenth of theirs, backwards.
    put_stride(next_cell(), source.data(), &block->numbers[50], {.count = 5, .item = 2, .local = 3, .remote = -10},
               {.arrived = &block->first});
    wait_flag(block->first, 1);
    const auto from = static_cast<std::int32_t>(index(last_cell()) * 1000);
    for (std::int32_t i = 0; i < 5; ++i) {
      EXPECT_EQ(block->numbers[static_cast<std::size_t>(50 - 10 * i)], from + 3 * i);
      EXPECT_EQ(block->numbers[static_cast<std::size_t>(51 - 10 * i)], from + 3 * i + 1);
    }
    EXPECT_EQ(block->numbers[52], 0);
    barrier();
    EXPECT_EQ(block->first.count(), 1);
    std::array<std::int32_t, 20> back{};
    Flag arrived;
    get_stride(next_cell(), back.data(), &block->numbers[50], {.count = 5, .item = 2, .local = 4, .remote = -10},
               {.arrived = &arrived});
    wait_flag(arrived, 1);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(back[4 * i], source[3 * i]);
      EXPECT_EQ(back[4 * i + 1], source[3 * i + 1]);
      EXPECT_EQ(back[4 * i + 2], 0);
    }
    barrier();
    EXPECT_EQ(arrived.count(), 1);
  });
}

TEST_P(OneSided, AcknowledgedPutsCanBeSeen) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    wait_acknowledged();  // nothing to wait for
    for (std::int32_t round = 1; round < 50; ++round) {
      for (std::uint32_t other = 0; other < cells(); ++other)
        put(cell(other), round, &block->numbers[me()], {.acknowledge = true});
      wait_acknowledged();
      for (std::uint32_t other = 0; other < cells(); ++other)
        ASSERT_EQ(get_value(cell(other), &block->numbers[me()]), round);
    }
    barrier();
  });
}

TEST_P(OneSided, AtomicsAreOneStepEach) {
  constexpr std::int32_t rounds = 100;
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    const CellId owner = cell(cells() / 2);
    std::int64_t last = -1;
    for (int i = 0; i < rounds; ++i) {
      const std::int64_t old = fetch_add(owner, &block->wide[0], 1);
      EXPECT_GT(old, last);
      last = old;
      fetch_add(owner, &block->numbers[0], -2);
      fetch_xor(owner, &block->numbers[1], 1 << (me() % 31));
      fetch_max(owner, &block->wide[1], static_cast<std::int64_t>(me()) - 3);
      fetch_min(owner, &block->wide[2], -static_cast<std::int64_t>(me()));
      for (std::int32_t seen = fetch_add(owner, &block->numbers[2], 0);;) {
        const std::int32_t found = compare_exchange(owner, &block->numbers[2], seen, seen + 3);
        if (found == seen) break;
        seen = found;
      }
    }
    fetch_or(owner, &block->wide[3], std::int64_t{1} << (me() % 62));
    barrier();
    if (cell(me()) == owner) {
      const auto count = static_cast<std::int32_t>(cells());
      EXPECT_EQ(block->wide[0], std::int64_t{rounds} * count);
      EXPECT_EQ(block->numbers[0], -2 * rounds * count);
      EXPECT_EQ(block->numbers[1], 0);
      EXPECT_EQ(block->wide[1], count > 4 ? count - 4 : 0);
      EXPECT_EQ(block->wide[2], 1 - count);
      EXPECT_EQ(block->numbers[2], 3 * rounds * count);
      EXPECT_EQ(block->wide[3], (std::int64_t{1} << count) - 1);
      EXPECT_EQ(exchange(owner, &block->numbers[9], 5), 0);
      EXPECT_EQ(exchange(owner, &block->numbers[9], 6), 5);
      EXPECT_EQ(fetch_and(owner, &block->numbers[9], 3), 6);
      EXPECT_EQ(block->numbers[9], 2);
      EXPECT_EQ(compare_exchange(owner, &block->numbers[9], 1, 8), 2);
      EXPECT_EQ(block->numbers[9], 2);
    }
    barrier();
  });
}

TEST_P(OneSided, FlagsWaitedForByManyTasksOfACell) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    std::vector<Task> tasks;
    tasks.reserve(20);
    int woken = 0;
    for (std::int32_t i = 1; i <= 20; ++i) {
      tasks.push_back(spawn([&woken, &block, i] {
        wait_flag(block->first, i);
        ++woken;
      }));
    }
    for (int i = 0; i < 20; ++i) raise_flag(next_cell(), &block->first);
    for (Task& task : tasks) task.join();
    EXPECT_EQ(woken, 20);
    barrier();
  });
}

TEST_P(OneSided, AFlagMayWrapAround) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    constexpr std::int32_t largest = 0x7fff'ffff;
    block->first.reset(largest - 1);
    barrier();
    for (int i = 0; i < 3; ++i) raise_flag(next_cell(), &block->first);
    wait_flag(block->first, -largest);
    EXPECT_EQ(block->first.count(), -largest);
    wait_flag(block->first, largest);  // reached long ago
    barrier();
  });
}

// Puts wake sleeping processors.
TEST_P(OneSided, PutsWakeSleepers) {
  run_on(GetParam(), [] {
    SharedBlock<Block> block;
    for (std::int32_t round = 1; round <= 20; ++round) {
      if (me() == 0) {
        this_task::sleep_for(std::chrono::microseconds(300));
        raise_flag(next_cell(), &block->first);
        wait_flag(block->first, round);
      } else {
        wait_flag(block->first, round);
        raise_flag(next_cell(), &block->first);
      }
    }
    barrier();
  });
}

// Who writes a page first takes the fault for it: so the waiting cell's thread counts what it has copied. It never
// sleeps, for who sleeps is not asked to help.
TEST(LargePuts, AreCopiedByBothProcessors) {
  struct Large {
    alignas(4096) std::array<std::byte, 1U << 20> body;
    Flag arrived;
    Flag again;
  };
  bool helped = false;
  testing_support::run_well({{2, 1}, 2}, [&helped] {
    const auto large = make_symmetric<Large>();
    madvise(large->body.data(), large->body.size(), MADV_NOHUGEPAGE);
    std::vector<std::byte> source(large->body.size(), std::byte{7});
    barrier();
    for (std::int32_t round = 1;; ++round) {  // until it helps: the other thread may have no core for a while
      if (me() == 0) {
        wait_flag(large->again, round);
        if (helped) return;
        put(cell(1), std::span<const std::byte>(source), large->body.data(), {.arrived = &large->arrived});
        continue;
      }
      madvise(large->body.data(), large->body.size(), MADV_DONTNEED);
      rusage before{};
      getrusage(RUSAGE_THREAD, &before);
      raise_flag(cell(0), &large->again);
      if (helped) return;
      while (large->arrived.count() < round) this_task::yield();
      rusage after{};
      getrusage(RUSAGE_THREAD, &after);
      EXPECT_TRUE(testing_support::all_bytes_are(std::byte{7}, large->body));
      helped = after.ru_minflt - before.ru_minflt >= 8;  // of 256 pages
    }
  });
  EXPECT_TRUE(helped);
}

INSTANTIATE_TEST_SUITE_P(Placements, OneSided, testing::ValuesIn(testing_support::placements()),
                         testing_support::placement_name);

}  // namespace
}  // namespace aplib
