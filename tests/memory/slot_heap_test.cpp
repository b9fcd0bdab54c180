// SPDX-License-Identifier: MIT
// The heap of a cell in its slot: compared with a model, equal in all cells, and its limits.
#include "memory/slot_heap.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

// Cells that no other test of this program uses.
constexpr std::uint32_t first_cell = 100;

/// Uses a heap at random, and checks each result: alignment, no overlap, contents, zeros.
class History {
 public:
  History(SlotHeap& heap, std::uint32_t seed, std::size_t alignment_max = 8192)
      : heap_(heap), random_(seed), alignments_(std::bit_width(alignment_max)) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) one_step();
  }
  void free_all() {
    while (!blocks_.empty()) release(blocks_.begin());
  }
  /// The place of each block when it was allocated, in order.
  [[nodiscard]] const std::vector<std::ptrdiff_t>& offsets() const { return offsets_; }

 private:
  struct Block {
    std::size_t bytes;
    unsigned char mark;
  };
  using Blocks = std::map<unsigned char*, Block>;

  std::size_t below(std::size_t limit) { return random_() % limit; }
  std::size_t size() {
    switch (below(8)) {
      case 0:
        return below(100'000);
      case 1:
        return below(8000);
      default:
        return below(300);
    }
  }

  void one_step() {
    const std::size_t what = below(100);
    if (blocks_.empty() || what < 40) {
      const std::size_t bytes = size();
      if (what % 4 == 0) {
        add(heap_.allocate_zeroed(bytes), bytes, true);
      } else if (what % 4 == 1) {
        const std::size_t alignment = std::size_t{1} << below(alignments_);
        void* block = heap_.allocate(bytes, alignment);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
        add(block, bytes, false);
      } else {
        add(heap_.allocate(bytes), bytes, false);
      }
      return;
    }
    const auto chosen = pick();
    if (what < 80) {
      release(chosen);
    } else {
      const Block old = chosen->second;
      auto* const place = chosen->first;
      const std::size_t bytes = size();
      blocks_.erase(chosen);
      auto* const moved = static_cast<unsigned char*>(heap_.resize(place, bytes));
      ASSERT_NE(moved, nullptr);
      expect_filled(moved, std::min(old.bytes, bytes), old.mark);
      add(moved, bytes, false);
    }
  }

  typename Blocks::iterator pick() {
    auto found = blocks_.lower_bound(reinterpret_cast<unsigned char*>(heap_.begin()) + below(heap_.mapped_bytes()));
    return found != blocks_.end() ? found : blocks_.begin();
  }

  void add(void* given, std::size_t bytes, bool zeroed) {
    auto* const place = static_cast<unsigned char*>(given);
    ASSERT_NE(place, nullptr);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(place) % SlotHeap::alignment_min, 0U);
    ASSERT_GE(SlotHeap::usable_bytes(place), bytes);
    if (zeroed) expect_filled(place, bytes, 0);
    const auto next = blocks_.upper_bound(place);
    if (next != blocks_.end()) {
      ASSERT_LE(place + SlotHeap::usable_bytes(place), next->first);
    }
    if (next != blocks_.begin()) {
      const auto before = std::prev(next);
      ASSERT_LE(before->first + std::max<std::size_t>(before->second.bytes, 1), place);
    }
    ASSERT_LE(reinterpret_cast<char*>(place) + bytes, heap_.begin() + heap_.mapped_bytes());
    const auto mark = static_cast<unsigned char>(below(255) + 1);
    // Uses all bytes that usable_bytes() reports.
    std::memset(place, mark, SlotHeap::usable_bytes(place));
    blocks_[place] = {bytes, mark};
    offsets_.push_back(reinterpret_cast<char*>(place) - heap_.begin());
  }

  void release(typename Blocks::iterator chosen) {
    expect_filled(chosen->first, chosen->second.bytes, chosen->second.mark);
    ASSERT_TRUE(heap_.release(chosen->first));
    blocks_.erase(chosen);
  }

  static void expect_filled(const unsigned char* place, std::size_t bytes, unsigned char mark) {
    ASSERT_TRUE(std::all_of(place, place + bytes, [mark](unsigned char each) { return each == mark; }));
  }

  SlotHeap& heap_;
  std::mt19937 random_;
  std::size_t alignments_;  // powers of two below that
  Blocks blocks_;
  std::vector<std::ptrdiff_t> offsets_;
};

TEST(SlotHeap, SeesASecondFreeOfBlocksOfAnySize) {
  CellHeap owner;
  SlotHeap& heap = *owner.get(first_cell + 50);
  for (const std::size_t bytes : {1, 40, 1000, 2000, 100'000}) {
    std::vector<void*> blocks;
    const int count =
        bytes < 50'000 ? 200 : 50;  // more than a list takes; the slots of ThreadSanitizer's builds are small
    for (int i = 0; i < count; ++i) {
      void* const block = heap.allocate(bytes);
      ASSERT_NE(block, nullptr) << bytes;
      std::memset(block, 0xff, bytes);
      blocks.push_back(block);
    }
    for (void* block : blocks) ASSERT_TRUE(heap.release(block)) << bytes;
    for (void* block : blocks) ASSERT_FALSE(heap.release(block)) << bytes;
    for (std::size_t i = 0; i < blocks.size(); ++i) {  // and they can be had again
      blocks[i] = heap.allocate(bytes);
      ASSERT_NE(blocks[i], nullptr);
    }
    for (void* block : blocks) ASSERT_TRUE(heap.release(block)) << bytes;
  }
}

TEST(SlotHeapTest, RandomHistoriesAgreeWithAModel) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    CellHeap owner;
    SlotHeap* heap = owner.get(first_cell);
    ASSERT_NE(heap, nullptr);
    History history(*heap, seed);
    history.run(static_cast<int>(testing_support::scaled(8000, 8)));
    history.free_all();
    if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
    // Freed memory is one piece again: most of the mapped memory can be allocated at once.
    const std::size_t mapped = heap->mapped_bytes();
    void* all = heap->allocate(mapped / 2);
    EXPECT_NE(all, nullptr);
    EXPECT_EQ(heap->mapped_bytes(), mapped);
  }
}

TEST(SlotHeapTest, TheSameCallsGiveTheSameOffsetsInEveryCell) {
  CellHeap one;
  CellHeap other;
  History here(*one.get(first_cell), 7, SlotPlan::alignment);
  History there(*other.get(first_cell + 5), 7, SlotPlan::alignment);
  here.run(2000);
  std::thread([&] { there.run(2000); }).join();
  EXPECT_EQ(here.offsets(), there.offsets());
}

// Hosts may have been built with different versions of the library behind the heap, which place blocks differently.
// What a version does must not depend on anything else; the launcher tells where versions differ.
TEST(SlotHeapTest, TheLayoutIsTheOneOfItsLibrary) {
  CellHeap owner;
  History history(*owner.get(first_cell), 11);
  history.run(1500);
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const std::ptrdiff_t offset : history.offsets())
    hash = (hash ^ static_cast<std::uint64_t>(offset)) * 1099511628211U;
  switch (SlotHeap::layout()) {
    case 1074:
      EXPECT_EQ(hash, 17054475556990144341U);
      break;  // Debian 12
    case 1083:
      EXPECT_EQ(hash, 4067405646107365493U);
      break;  // Debian 13
    default:
      ADD_FAILURE() << "the layout of layout() " << SlotHeap::layout() << " is not known here: add " << hash
                    << ", if two computers with this version of Boost give it";
  }
}

TEST(SlotHeapTest, ThreadsThatTakeTurnsChangeNothing) {
  CellHeap plain;
  History alone(*plain.get(first_cell), 3, SlotPlan::alignment);
  alone.run(1000);
  CellHeap owner;
  SlotHeap& heap = *owner.get(first_cell + 1);
  heap.share();
  History by_turns(heap, 3, SlotPlan::alignment);
  for (int turn = 0; turn < 20; ++turn) std::thread([&] { by_turns.run(50); }).join();
  EXPECT_EQ(alone.offsets(), by_turns.offsets());
}

TEST(SlotHeapTest, ThreadsOfACellMayAllocateAtTheSameTime) {
  CellHeap owner;
  SlotHeap& heap = *owner.get(first_cell);
  heap.share();
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 3; ++number) {
    threads.emplace_back([&heap, number] {
      std::mt19937 random(number);
      std::array<unsigned char*, 64> held{};
      for (int step = 0; step < 5000; ++step) {
        unsigned char*& one = held[random() % held.size()];
        if (one != nullptr) {
          EXPECT_EQ(*one, number);
          EXPECT_TRUE(heap.release(one));
        }
        one = static_cast<unsigned char*>(heap.allocate(random() % 2000 + 1));
        *one = static_cast<unsigned char>(number);
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

TEST(SlotHeapTest, OthersMayFreeBlocksWhileTheCellAllocates) {
  CellHeap owner;
  SlotHeap& heap = *owner.get(first_cell);
  constexpr int count = static_cast<int>(testing_support::scaled(20'000));
  std::atomic<void*> passed{nullptr};
  std::thread other([&] {
    for (int got = 0; got < count;) {
      void* block = passed.exchange(nullptr);
      if (block == nullptr) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_TRUE(heap.release_from_outside(block));
      ++got;
    }
  });
  for (int i = 0; i < count; ++i) {
    void* block = heap.allocate(48);
    while (passed.load() != nullptr) std::this_thread::yield();
    passed.store(block);
  }
  other.join();
  // Freed blocks are reused. Otherwise 20,000 blocks of 64 bytes would be held.
  EXPECT_LE(heap.mapped_bytes(), std::size_t{1} << 20);
}

TEST(SlotHeapTest, WhatDoesNotFitIsRefusedAndTheRestGoesOn) {
  CellHeap owner;
  SlotHeap& heap = *owner.get(first_cell);
  for (const std::size_t bytes : {SlotPlan::heap_bytes(), SIZE_MAX, SIZE_MAX - 15, SIZE_MAX / 2}) {
    errno = 0;
    EXPECT_EQ(heap.allocate(bytes), nullptr) << bytes;
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(heap.allocate(bytes, 4096), nullptr) << bytes;
    EXPECT_EQ(heap.allocate_zeroed(bytes), nullptr) << bytes;
  }
  EXPECT_EQ(heap.allocate(1, std::size_t{1} << 60), nullptr);
  auto* const kept = static_cast<char*>(heap.allocate(100));
  std::memset(kept, 'x', 100);
  EXPECT_EQ(heap.resize(kept, SIZE_MAX - 100), nullptr);
  EXPECT_EQ(heap.resize(kept, SlotPlan::heap_bytes()), nullptr);
  EXPECT_EQ(kept[99], 'x');
  // Full, in pieces, and empty again.
  const std::size_t piece = SlotPlan::heap_bytes() / 16;
  std::vector<void*> pieces;
  while (void* block = heap.allocate(piece)) pieces.push_back(block);
  EXPECT_EQ(pieces.size(), 15U);
  EXPECT_LE(heap.mapped_bytes(), SlotPlan::heap_bytes());
  while (heap.allocate(1000) != nullptr) {
  }
  EXPECT_EQ(errno, ENOMEM);
  for (void* block : pieces) EXPECT_TRUE(heap.release(block));
  EXPECT_NE(heap.allocate(14 * piece), nullptr);
}

TEST(SlotHeapTest, BlocksInListsAreUsedWhenNothingElseIsLeft) {
  CellHeap owner;
  SlotHeap& heap = *owner.get(first_cell);
  std::vector<void*> small;
  for (int i = 0; i < 60; ++i) small.push_back(heap.allocate(1000));
  const std::size_t hog = SlotPlan::heap_bytes() / 4;
  while (heap.allocate(hog) != nullptr) {
  }
  while (heap.allocate(30'000) != nullptr) {
  }
  for (void* block : small) EXPECT_TRUE(heap.release(block));
  EXPECT_NE(heap.allocate(40'000), nullptr);
}

TEST(SlotHeapTest, WhatIsNoBlockIsNotFreed) {
  CellHeap owner;
  SlotHeap& heap = *owner.get(first_cell);
  auto* const block = static_cast<char*>(heap.allocate(100));
  EXPECT_FALSE(heap.release(block + 8));
  EXPECT_FALSE(heap.release(heap.begin()));
  EXPECT_FALSE(heap.release(heap.begin() + heap.mapped_bytes()));
  EXPECT_FALSE(heap.release_from_outside(&heap + 1000000));
  EXPECT_TRUE(heap.release(block));
  EXPECT_FALSE(heap.release(block)) << "a second free is seen";
}

TEST(SlotHeapTest, ResizingInPlaceKeepsTheAddressWhereItCan) {
  CellHeap owner;
  SlotHeap& heap = *owner.get(first_cell);
  void* const large = heap.allocate(20'000);
  EXPECT_EQ(heap.resize(large, 40'000), large) << "there is room behind it";
  EXPECT_EQ(heap.resize(large, 5'000), large);
  EXPECT_LT(SlotHeap::usable_bytes(large), 6'000U);
  void* const small = heap.allocate(100);
  EXPECT_EQ(heap.resize(small, 50), small);
}

TEST(SlotHeapTest, FreedBlocksAreKeptOnRequest) {
  char* const place = SlotPlan::heap_of(first_cell + 40);
  SlotHeap* const heap = SlotHeap::make(place, SlotPlan::heap_bytes());
  ASSERT_NE(heap, nullptr);
  for (const std::size_t bytes : {100, 10'000, 1'000'000}) {
    auto* const freed = static_cast<unsigned char*>(heap->allocate(bytes));
    auto* const from_outside = static_cast<unsigned char*>(heap->allocate(bytes));
    auto* const shrunk = static_cast<unsigned char*>(heap->allocate(bytes));
    for (unsigned char* block : {freed, from_outside, shrunk}) std::memset(block, 7, bytes);
    heap->keep_freed();
    EXPECT_TRUE(heap->release(freed));
    EXPECT_TRUE(heap->release_from_outside(from_outside));
    EXPECT_EQ(heap->resize(shrunk, 10), shrunk);
    for (int i = 0; i < 100; ++i) {
      auto* const other = static_cast<unsigned char*>(heap->allocate(bytes));
      for (const unsigned char* block : {freed, from_outside, shrunk})
        EXPECT_TRUE(other >= block + bytes || other + bytes <= block);
    }
    for (const unsigned char* block : {freed, from_outside, shrunk})
      EXPECT_TRUE(std::all_of(block, block + bytes, [](unsigned char each) { return each == 7; }));
  }
  SlotHeap::unmake(heap);
}

TEST(SlotHeapTest, AnAddressLeadsToItsHeap) {
  CellHeap owner;
  SlotHeap* const heap = owner.get(first_cell);
  EXPECT_EQ(owner.get(first_cell), heap);
  EXPECT_EQ(heap->begin(), SlotPlan::heap_of(first_cell));
  EXPECT_EQ(SlotHeap::around(heap->allocate(10)), heap);
  int local = 0;
  EXPECT_EQ(SlotHeap::around(&local), nullptr);
  EXPECT_EQ(SlotHeap::around(nullptr), nullptr);
  EXPECT_EQ(SlotPlan::heap_around(SlotPlan::heap_of(3) - 1), nullptr);
  EXPECT_EQ(SlotPlan::heap_around(SlotPlan::heap_of(3) + SlotPlan::heap_bytes()), nullptr);
  EXPECT_EQ(SlotPlan::heap_around(SlotPlan::heap_of(3) + SlotPlan::heap_bytes() - 1), SlotPlan::heap_of(3));
  const std::vector<int> libcs(10);
  EXPECT_EQ(SlotHeap::around(libcs.data()), nullptr);
}

TEST(SlotHeapTest, AddressesInASlotWithoutHeapAreSomebodyElses) {
  // As with an unlimited stack, where the system maps what it likes there.
  char* const place = SlotPlan::heap_of(first_cell + 7);
  void* const got = mmap(place, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(got, place);
  EXPECT_FALSE(SlotHeap::is_made(SlotHeap::around(place + 100)));
  munmap(place, 4096);

  SlotHeap* const heap = SlotHeap::make(place, SlotPlan::heap_bytes());
  ASSERT_NE(heap, nullptr);
  EXPECT_TRUE(SlotHeap::is_made(SlotHeap::around(heap->allocate(10))));
  EXPECT_FALSE(SlotHeap::is_made(reinterpret_cast<SlotHeap*>(SlotPlan::heap_of(first_cell + 8))));
  SlotHeap::unmake(heap);
  EXPECT_FALSE(SlotHeap::is_made(SlotHeap::around(place + 100)));
}

TEST(SlotHeapTest, BelowTwoGibibytesCellsShareWhatThereIs) {
  constexpr std::size_t cells = 5;
  std::vector<CellMemory> places{LowPlan::of_host()};
  for (std::size_t cell = 0; cell < cells; ++cell) places.push_back(LowPlan::of_cell(cell, cells));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const CellMemory& at = places[i];
    EXPECT_EQ(at.heap, at.instances + at.bytes_each);
    EXPECT_LE(reinterpret_cast<std::uintptr_t>(at.heap + at.bytes_each), LowPlan::end);
    if (i != 0) {
      EXPECT_GE(at.instances, places[i - 1].heap + places[i - 1].bytes_each);
    }
    EXPECT_EQ(LowPlan::heap_around(at.heap), at.heap);
    EXPECT_EQ(LowPlan::heap_around(at.heap + at.bytes_each - 1), at.heap);
    EXPECT_EQ(LowPlan::heap_around(at.heap - 1), nullptr);
  }
  CellHeap host;
  CellHeap cell;
  SlotHeap* const hosts = host.get(places[0].heap, places[0].bytes_each);
  SlotHeap* const cells_own = cell.get(places[3].heap, places[3].bytes_each);
  ASSERT_TRUE(hosts != nullptr && cells_own != nullptr);
  void* const block = cells_own->allocate(100);
  EXPECT_EQ(SlotHeap::around(block), cells_own);
  EXPECT_TRUE(SlotHeap::is_made(cells_own));
  EXPECT_EQ(SlotHeap::around(hosts->allocate(100)), hosts);
  EXPECT_TRUE(cells_own->release(block));
  EXPECT_EQ(cells_own->allocate(places[3].bytes_each), nullptr);
  EXPECT_FALSE(SlotHeap::is_made(reinterpret_cast<SlotHeap*>(places[2].heap)));
}

TEST(SlotHeapTest, ItIsMadeWhenNeededAndGivenBack) {
  char* const place = SlotPlan::heap_of(first_cell);
  const auto is_mapped = [place] {
    unsigned char in_core = 0;
    return mincore(place, 1, &in_core) == 0;
  };
  {
    CellHeap owner;
    EXPECT_EQ(owner.made(), nullptr);
    EXPECT_FALSE(is_mapped());
    ASSERT_NE(owner.get(first_cell), nullptr);
    EXPECT_TRUE(is_mapped());
    CellHeap second;
    EXPECT_EQ(second.get(first_cell), nullptr) << "another machine of this process has it";
    EXPECT_EQ(errno, EEXIST);
    EXPECT_NE(owner.made()->allocate(5'000'000), nullptr);
  }
  EXPECT_FALSE(is_mapped());
}

}  // namespace
}  // namespace aplib
