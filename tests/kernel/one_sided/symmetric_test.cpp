// SPDX-License-Identifier: MIT
// Symmetric memory that programs allocate explicitly for put and get.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"
#include "aplib/cellos.h"
#include "checks.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using testing_support::cell;
using testing_support::contains;
using testing_support::error_text;
using testing_support::me;
using testing_support::run;
using testing_support::run_well;
using testing_support::Shape;

class Symmetric : public testing::TestWithParam<Shape> {};

TEST_P(Symmetric, ATableOfEachCellIsReachedByTheCallersOwnAddress) {
  run_well(GetParam(), [] {
    const std::uint32_t cells = this_machine::cell_count();
    const auto table = make_symmetric<std::uint64_t[]>(1000);
    const auto arrived = make_symmetric<Flag>();
    barrier();
    for (std::uint32_t i = 0; i < cells; ++i)
      put(cell(i), std::uint64_t{me()} * 1000 + i, &table[me()], {.arrived = arrived.get()});
    wait_flag(*arrived, static_cast<std::int32_t>(cells));
    for (std::uint32_t i = 0; i < cells; ++i) EXPECT_EQ(table[i], std::uint64_t{i} * 1000 + me());
    EXPECT_EQ(table[cells], 0U);
    barrier();
  });
}

TEST_P(Symmetric, CellsThatAllocateAlikeHaveTheSameOffsets) {
  run_well(GetParam(), [] {
    std::mt19937 random(5);
    std::array<void*, 50> held{};
    std::uint64_t hash = 0;
    const auto* const anchor = static_cast<char*>(symmetric_allocate(1));
    for (int step = 0; step < 1000; ++step) {
      void*& one = held[random() % held.size()];
      if (one != nullptr) symmetric_free(one);
      one = random() % 4 == 0 ? nullptr : symmetric_allocate(random() % 3000, std::size_t{1} << (random() % 10));
      hash = hash * 31 + (one == nullptr ? 0 : static_cast<std::uint64_t>(static_cast<char*>(one) - anchor));
      if (step % 100 == 0) this_task::yield();
    }
    for (void* one : held) symmetric_free(one);
    const auto low = static_cast<std::int32_t>(hash & 0xffffff);
    EXPECT_EQ(reduce(ReduceOp::max, low), low);
    EXPECT_EQ(reduce(ReduceOp::min, low), low);
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Symmetric,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{4, 1}, 1}, Shape{{4, 2}, 2},
                                         Shape{{3, 1}, Options::threads_per_cell}),
                         testing_support::shape_name);

struct Counted {
  static inline int alive = 0;
  Counted() { ++alive; }
  explicit Counted(int number) {
    if (number < 0) throw std::runtime_error("no such number");
    ++alive;
  }
  ~Counted() { --alive; }
  alignas(64) char bytes[64];
};

TEST(SymmetricMemory, OwnersDestroyWhatTheyHold) {
  run_well(Shape{{1, 1}, 1}, [] {
    {
      const auto one = make_symmetric<Counted>(5);
      const auto many = make_symmetric<Counted[]>(7);
      EXPECT_EQ(Counted::alive, 8);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&many[3]) % 64, 0U);
      EXPECT_THROW(static_cast<void>(make_symmetric<Counted>(-1)), std::runtime_error);
    }
    EXPECT_EQ(Counted::alive, 0);
    std::vector<double, SymmetricAllocator<double>> field(100, 2.5);
    field.resize(10'000);
    EXPECT_EQ(field[99], 2.5);
    put(cell(0), 1.5, &field[7]);
    EXPECT_EQ(field[7], 1.5);
  });
}

TEST(SymmetricMemory, WhatIsWrongIsSaid) {
  run_well(Shape{{2, 1}, 1}, [] {
    if (me() != 0) return;
    EXPECT_EQ(error_text([] { static_cast<void>(symmetric_allocate(10, 24)); }),
              "cell 0 task 0: symmetric_allocate: 24 is no alignment; use a power of two");
    EXPECT_TRUE(contains(error_text([] { static_cast<void>(symmetric_allocate(std::size_t{1} << 40)); }),
                         "cell 0 task 0: symmetric_allocate: no room for 1099511627776 bytes in the cell's heap"));
    int local = 0;
    EXPECT_TRUE(contains(error_text([&] { symmetric_free(&local); }), "is not in the heap of a cell of this process"));
    void* const memory = symmetric_allocate(100);
    symmetric_free(memory);
    EXPECT_TRUE(contains(error_text([&] { symmetric_free(memory); }), "was freed before"));
    symmetric_free(nullptr);
    EXPECT_THROW(static_cast<void>(SymmetricAllocator<double>().allocate(SIZE_MAX / 4)), std::bad_array_new_length);
  });
  EXPECT_THROW(static_cast<void>(symmetric_allocate(10)), Error) << "outside a task";
}

TEST(SymmetricMemory, AnotherCellMayFreeIt) {
  run_well(Shape{{2, 1}, 2}, [] {
    if (me() == 0) {
      for (int i = 0; i < 100; ++i) send(cell(1), reinterpret_cast<std::uintptr_t>(symmetric_allocate(5000)));
    } else {
      for (int i = 0; i < 100; ++i) symmetric_free(reinterpret_cast<void*>(receive().as<std::uintptr_t>()));
    }
  });
}

TEST(SymmetricMemory, TheCFunctionsAreAsMalloc) {
  run_well(Shape{{2, 1}, 2}, [] {
    auto* const numbers = static_cast<int*>(ap_calloc(100, sizeof(int)));
    EXPECT_EQ(numbers[99], 0);
    numbers[99] = 7;
    auto* const more = static_cast<int*>(ap_realloc(numbers, 10'000 * sizeof(int)));
    EXPECT_EQ(more[99], 7);
    void* const aligned = ap_aligned_alloc(4096, 100);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 4096, 0U);
    EXPECT_EQ(ap_realloc(aligned, 0), nullptr);
    EXPECT_PRED2(
        contains, error_text([] { static_cast<void>(symmetric_allocate(100, 8192)); }),
        std::string("symmetric_allocate: memory aligned to 8192 bytes would lie at another place in each cell"));
    ap_free(more);
    ap_free(nullptr);
    errno = 0;
    EXPECT_EQ(ap_malloc(SIZE_MAX / 2), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(ap_calloc(SIZE_MAX / 2, 8), nullptr);
    EXPECT_NE(ap_malloc(0), nullptr);
  });
}

/// Frees a block where it unwinds, and takes the next of the same size.
class FreesAndTakes {
 public:
  explicit FreesAndTakes(bool& reused) : block_(symmetric_allocate(bytes)), reused_(reused) {}
  ~FreesAndTakes() {
    symmetric_free(block_);
    reused_ = symmetric_allocate(bytes) == block_;
  }
  FreesAndTakes(const FreesAndTakes&) = delete;
  FreesAndTakes& operator=(const FreesAndTakes&) = delete;

 private:
  static constexpr std::size_t bytes = 1000;
  void* const block_;
  bool& reused_;
};

TEST(SymmetricMemory, WhatUnwindingFreesIsNotUsedAgain) {
  bool reused = true;
  bool reused_in_order = false;
  const Report report = run(Shape{{2, 1}, 2}, [&] {
    if (me() == 1) {
      { const FreesAndTakes in_order(reused_in_order); }
      static_cast<void>(receive());
      throw 1;
    }
    const FreesAndTakes unwound(reused);
    send(cell(1), 0);
    static_cast<void>(receive());
  });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::program_failed));
  EXPECT_TRUE(reused_in_order);
  EXPECT_FALSE(reused) << "others may still write there";
}

TEST(SymmetricMemory, EveryRunBeginsAnew) {
  Machine machine(testing_support::options_of(Shape{{2, 1}, 2}));
  std::array<std::uintptr_t, 2> first{};
  for (int round = 0; round < 2; ++round) {
    machine.run([&] {
      const auto place = reinterpret_cast<std::uintptr_t>(symmetric_allocate(100'000));
      if (round == 0) {
        first[me()] = place;
      } else {
        EXPECT_EQ(place, first[me()]);
      }
    });
  }
}

}  // namespace
}  // namespace aplib
