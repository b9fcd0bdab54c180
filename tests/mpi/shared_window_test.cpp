// SPDX-License-Identifier: MIT
// Memory that ranks share: who shares it, where it lies, and one-sided calls on it, in one process and in several of a
// host.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "error_class.hpp"
#include "placements.hpp"

namespace aplib {
namespace {

using namespace testing_support;

bool share_memory(const Placement& placement) {
  return placement.processes.empty() || placement.faults.shares_host || placement.name == "parts_over_shm";
}

std::vector<Placement> placements_of_hosts() {
  std::vector<Placement> some = placements();
  std::erase_if(some, [](const Placement& each) { return each.name.starts_with("parts_over_rdma"); });
  some.push_back({"two_processes_of_a_host", {2, 1}, 1, {1, 1}, {.shares_host = true}, nullptr});
  some.push_back({"processes_of_a_host", {5, 1}, 2, {2, 1, 2}, {.delay_polls_max = 3, .shares_host = true}, nullptr});
  some.push_back({"in_turns_on_a_host", {3, 2}, 2, {2, 2, 2}, {.shares_host = true}, nullptr, {}, true});
  return some;
}

std::vector<Placement> placements_that_share() {
  std::vector<Placement> some = placements_of_hosts();
  std::erase_if(some, [](const Placement& each) { return !share_memory(each); });
  return some;
}

void with_mpi_on(const Placement& placement, const std::function<void(int rank, int size)>& program) {
  run_on(placement, [&program] {
    MPI_Init(nullptr, nullptr);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    program(rank, size);
    MPI_Finalize();
  });
}

/// A window with so many numbers of this rank.
struct SharedNumbers {
  explicit SharedNumbers(int count, MPI_Info hints = MPI_INFO_NULL) {
    MPI_Win_allocate_shared(count * MPI_Aint{sizeof(std::int64_t)}, sizeof(std::int64_t), hints, MPI_COMM_WORLD,
                            static_cast<void*>(&own), &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  }
  ~SharedNumbers() { EXPECT_EQ(MPI_Win_free(&win), MPI_SUCCESS); }
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;

  [[nodiscard]] std::int64_t* of(int rank, int count) const {
    MPI_Aint bytes = -1;
    int unit = -1;
    std::int64_t* place = nullptr;
    EXPECT_EQ(MPI_Win_shared_query(win, rank, &bytes, &unit, static_cast<void*>(&place)), MPI_SUCCESS);
    EXPECT_EQ(bytes, count * MPI_Aint{sizeof(std::int64_t)});
    const bool is_nobody = rank == MPI_PROC_NULL && count == 0;
    EXPECT_EQ(unit, is_nobody ? 1 : static_cast<int>(sizeof(std::int64_t)));
    return place;
  }

  std::int64_t* own = nullptr;
  MPI_Win win = MPI_WIN_NULL;
};

// ---------------------------------------------------------------- who shares it

class HostsOn : public testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(, HostsOn, testing::ValuesIn(placements_of_hosts()), placement_name);

TEST_P(HostsOn, SplitTypeGivesThoseThatShareMemory) {
  const bool shares = share_memory(GetParam());
  with_mpi_on(GetParam(), [shares](int rank, int size) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, size - rank, MPI_INFO_NULL, &part);
    int count = 0;
    MPI_Comm_size(part, &count);
    EXPECT_EQ(count == size, shares);
    int place = -1;
    MPI_Comm_rank(part, &place);
    EXPECT_TRUE(!shares || place == size - 1 - rank);
    std::int64_t* own = nullptr;
    MPI_Win win = MPI_WIN_NULL;
    ASSERT_EQ(MPI_Win_allocate_shared(8, 8, MPI_INFO_NULL, part, static_cast<void*>(&own), &win), MPI_SUCCESS);
    *own = rank;
    MPI_Win_fence(0, win);
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Comm_group(part, &some);
    for (int i = 0; i < count; ++i) {
      int in_world = -1;
      MPI_Group_translate_ranks(some, 1, &i, all, &in_world);
      MPI_Aint bytes = 0;
      int unit = 0;
      std::int64_t* its = nullptr;
      MPI_Win_shared_query(win, i, &bytes, &unit, static_cast<void*>(&its));
      EXPECT_EQ(*its, in_world);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    MPI_Win_free(&win);
    MPI_Comm_free(&part);
    // Those of no type take part without a part.
    MPI_Comm_split_type(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &part);
    EXPECT_EQ(part == MPI_COMM_NULL, rank == 0);
    if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
    // A part of the hardware is less than all.
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, 0, MPI_INFO_NULL, &part);
    EXPECT_EQ(part == MPI_COMM_NULL, shares);
    if (part != MPI_COMM_NULL) MPI_Comm_free(&part);
  });
}

TEST_P(HostsOn, OnlyThoseThatShareMemoryGetIt) {
  const bool shares = share_memory(GetParam());
  with_mpi_on(GetParam(), [shares](int, int) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int* base = nullptr;
    MPI_Win win = MPI_WIN_NULL;
    const int code = MPI_Win_allocate_shared(4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&base), &win);
    EXPECT_EQ(class_of(code), shares ? MPI_SUCCESS : MPI_ERR_RMA_SHARED);
    if (win != MPI_WIN_NULL) MPI_Win_free(&win);
  });
}

// ---------------------------------------------------------------- where it lies

class SharedWindowOn : public testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(, SharedWindowOn, testing::ValuesIn(placements_that_share()), placement_name);

TEST_P(SharedWindowOn, SegmentsLieSideBySide) {
  with_mpi_on(GetParam(), [](int rank, int size) {
    const SharedNumbers numbers(3 * rank);
    EXPECT_EQ(numbers.own == nullptr, rank == 0);
    std::int64_t* const first = size > 1 ? numbers.of(1, 3) : nullptr;
    std::int64_t* next = first;
    for (int each = 1; each < size; ++each) {
      EXPECT_EQ(numbers.of(each, 3 * each), next);
      next += 3 * each;
    }
    EXPECT_EQ(numbers.of(MPI_PROC_NULL, size > 1 ? 3 : 0), first) << "the first that has some";
  });
}

TEST_P(SharedWindowOn, SegmentsThatNeedNotTouchBeginCacheLines) {
  with_mpi_on(GetParam(), [](int rank, int size) {
    MPI_Info hints = MPI_INFO_NULL;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "alloc_shared_noncontig", "true");
    const SharedNumbers numbers(rank + 1, hints);
    MPI_Info_free(&hints);
    for (int each = 0; each < size; ++each)
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(numbers.of(each, each + 1)) % 64, 0U);
  });
}

TEST_P(SharedWindowOn, NobodyNeedsMemory) {
  with_mpi_on(GetParam(), [](int, int size) {
    const SharedNumbers none(0);
    EXPECT_EQ(none.own, nullptr);
    for (int each = 0; each < size; ++each) EXPECT_EQ(none.of(each, 0), nullptr);
    EXPECT_EQ(none.of(MPI_PROC_NULL, 0), nullptr);
  });
}

// In one process malloc() says so, and that of sanitizers ends the program.
TEST_P(SharedWindowOn, WhatIsMoreThanThereIsIsRefusedByAll) {
  if (GetParam().processes.empty()) return;
  with_mpi_on(GetParam(), [](int rank, int size) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int* base = nullptr;
    MPI_Win win = MPI_WIN_NULL;
    const MPI_Aint much = rank == size - 1 ? MPI_Aint{1} << 60 : 8;
    EXPECT_EQ(
        class_of(MPI_Win_allocate_shared(much, 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&base), &win)),
        MPI_ERR_NO_MEM);
    EXPECT_EQ(win, MPI_WIN_NULL);
    const SharedNumbers numbers(1);  // another one is none the worse for it
    *numbers.own = rank;
  });
}

// ---------------------------------------------------------------- what is done with it

TEST_P(SharedWindowOn, LoadsAndStoresReachAll) {
  with_mpi_on(GetParam(), [](int rank, int size) {
    const SharedNumbers numbers(size);
    for (int round = 0; round < 5; ++round) {
      for (int each = 0; each < size; ++each) numbers.of(each, size)[rank] = round * 100 + rank * 10 + each;
      MPI_Win_fence(0, numbers.win);
      for (int each = 0; each < size; ++each) EXPECT_EQ(numbers.own[each], round * 100 + each * 10 + rank);
      MPI_Win_fence(0, numbers.win);
    }
  });
}

TEST_P(SharedWindowOn, PutsAndGetsAreThereAtOnce) {
  with_mpi_on(GetParam(), [](int rank, int size) {
    constexpr int count = 5000;
    const SharedNumbers numbers(count);
    std::vector<std::int64_t> given(count);
    std::iota(given.begin(), given.end(), rank);
    const int next = (rank + 1) % size;
    MPI_Win_fence(0, numbers.win);
    EXPECT_EQ(MPI_Put(given.data(), count, MPI_INT64_T, next, 0, count, MPI_INT64_T, numbers.win), MPI_SUCCESS);
    EXPECT_TRUE(std::equal(given.begin(), given.end(), numbers.of(next, count)));
    std::vector<std::int64_t> got(count);
    EXPECT_EQ(MPI_Get(got.data(), count, MPI_INT64_T, next, 0, count, MPI_INT64_T, numbers.win), MPI_SUCCESS);
    EXPECT_EQ(got, given);
    EXPECT_EQ(class_of(MPI_Put(given.data(), count, MPI_INT64_T, next, 1, count, MPI_INT64_T, numbers.win)),
              MPI_ERR_RMA_RANGE);
    MPI_Win_fence(0, numbers.win);
    EXPECT_EQ(numbers.own[count - 1], (rank + size - 1) % size + count - 1);
  });
}

// Of all kinds, which must not come between each other, in whatever process they are done.
TEST_P(SharedWindowOn, WhatCombinesIsAtomic) {
  with_mpi_on(GetParam(), [](int rank, int size) {
    constexpr int rounds = 500;
    constexpr int several = 3;
    const SharedNumbers numbers(2 + several);
    std::fill_n(numbers.own, 2 + several, 0);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, numbers.win);
    MPI_Win_lock_all(0, numbers.win);
    const std::int64_t one = 1;
    const std::array<std::int64_t, several> ones{1, 1, 1};
    for (int round = 0; round < rounds; ++round) {
      const int to = (rank + round) % size;
      std::int64_t before = 0;
      MPI_Fetch_and_op(&one, &before, MPI_INT64_T, to, 0, MPI_SUM, numbers.win);
      MPI_Accumulate(&one, 1, MPI_INT64_T, to, 0, 1, MPI_INT64_T, MPI_SUM, numbers.win);
      MPI_Accumulate(ones.data(), several, MPI_INT64_T, to, 2, several, MPI_INT64_T, MPI_SUM, numbers.win);
      for (std::int64_t seen = 0, wanted = -1; seen != wanted;) {
        wanted = seen;
        const std::int64_t more = seen + 1;
        MPI_Compare_and_swap(&more, &wanted, &seen, MPI_INT64_T, to, 1, numbers.win);
      }
    }
    MPI_Win_unlock_all(numbers.win);
    MPI_Barrier(MPI_COMM_WORLD);
    std::int64_t counted = 0;
    for (int from = 0; from < size; ++from) {
      for (int round = 0; round < rounds; ++round) counted += (from + round) % size == rank ? 1 : 0;
    }
    EXPECT_EQ(numbers.own[0], 2 * counted);
    for (int i = 1; i < 2 + several; ++i) EXPECT_EQ(numbers.own[i], counted);
    MPI_Barrier(MPI_COMM_WORLD);
  });
}

TEST_P(SharedWindowOn, ALockKeepsOthersOut) {
  with_mpi_on(GetParam(), [](int, int size) {
    constexpr int rounds = 50;
    const SharedNumbers numbers(1);
    *numbers.own = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < rounds; ++round) {
      for (int to = 0; to < size; ++to) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, numbers.win);
        *numbers.of(to, 1) += 1;
        MPI_Win_unlock(to, numbers.win);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(*numbers.own, rounds * size);
    MPI_Barrier(MPI_COMM_WORLD);
  });
}

TEST_P(SharedWindowOn, TheMemoryOfARankThatHasEndedStays) {
  run_on(GetParam(), [] {
    MPI_Init(nullptr, nullptr);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::int64_t* own = nullptr;
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_allocate_shared(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&own), &win);
    *own = 100 + rank;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) return;  // without MPI_Finalize
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int none = 0;
    EXPECT_EQ(class_of(MPI_Recv(&none, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)), MPI_ERR_PROC_ABORTED);
    MPI_Aint bytes = 0;
    int unit = 0;
    std::int64_t* its = nullptr;
    MPI_Win_shared_query(win, 0, &bytes, &unit, static_cast<void*>(&its));
    EXPECT_EQ(*its, 100);
  });
}

}  // namespace
}  // namespace aplib
