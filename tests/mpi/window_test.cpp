// SPDX-License-Identifier: MIT
// Windows: one-sided calls of every kind, in every way in which ranks synchronise, and what is wrong about them.
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "error_class.hpp"
#include "placements.hpp"

namespace aplib {
namespace {

using namespace testing_support;

struct Ranks {
  Ranks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  int rank = 0;
  int size = 0;
};

/// A window over some numbers of each rank.
struct Numbers : Ranks {
  explicit Numbers(std::size_t count) : numbers(count) {
    MPI_Win_create(numbers.data(), static_cast<MPI_Aint>(count * sizeof(int)), sizeof(int), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  }
  ~Numbers() { EXPECT_EQ(MPI_Win_free(&win), MPI_SUCCESS); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  int put(int value, int target, MPI_Aint place) const {
    return MPI_Put(&value, 1, MPI_INT, target, place, 1, MPI_INT, win);
  }
  [[nodiscard]] int get(int target, MPI_Aint place) const {
    int value = -1;
    EXPECT_EQ(MPI_Get(&value, 1, MPI_INT, target, place, 1, MPI_INT, win), MPI_SUCCESS);
    return value;
  }

  std::vector<int> numbers;
  MPI_Win win = MPI_WIN_NULL;
};

void with_mpi(const Shape& shape, const std::function<void()>& program) {
  run_well(shape, [&] {
    MPI_Init(nullptr, nullptr);
    program();
    MPI_Finalize();
  });
}

class WindowOn : public testing::TestWithParam<Placement> {
 protected:
  static void with_ranks(const std::function<void()>& program) {
    run_on(GetParam(), [&program] {
      MPI_Init(nullptr, nullptr);
      program();
      MPI_Finalize();
    });
  }
};
std::vector<Placement> placements_without_rdma() {
  std::vector<Placement> some = placements();
  std::erase_if(some, [](const Placement& each) { return each.name.starts_with("parts_over_rdma"); });
  return some;
}
INSTANTIATE_TEST_SUITE_P(, WindowOn, testing::ValuesIn(placements_without_rdma()), placement_name);

// ---------------------------------------------------------------- what synchronises

TEST_P(WindowOn, FencesSeparateWhatRanksDo) {
  with_ranks([] {
    Numbers own(16);
    EXPECT_EQ(MPI_Win_fence(MPI_MODE_NOPRECEDE, own.win), MPI_SUCCESS);
    for (int round = 1; round <= 8; ++round) {
      for (int to = 0; to < own.size; ++to) EXPECT_EQ(own.put(round * 100 + own.rank, to, own.rank), MPI_SUCCESS);
      MPI_Win_fence(0, own.win);
      for (int from = 0; from < own.size; ++from)
        EXPECT_EQ(own.numbers[static_cast<std::size_t>(from)], round * 100 + from);
      MPI_Win_fence(0, own.win);
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, own.win);
  });
}

TEST_P(WindowOn, GroupsOpenAndReachEachOther) {
  with_ranks([] {
    Numbers own(4);
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Win_get_group(own.win, &all);
    const int next = (own.rank + 1) % own.size;
    const int before = (own.rank + own.size - 1) % own.size;
    MPI_Group from = MPI_GROUP_NULL;
    MPI_Group to = MPI_GROUP_NULL;
    MPI_Group_incl(all, 1, &before, &from);
    MPI_Group_incl(all, 1, &next, &to);
    for (int round = 0; round < 10; ++round) {
      EXPECT_EQ(MPI_Win_post(from, 0, own.win), MPI_SUCCESS);
      EXPECT_EQ(MPI_Win_start(to, 0, own.win), MPI_SUCCESS);
      EXPECT_EQ(own.put(round + own.rank, next, 1), MPI_SUCCESS);
      EXPECT_EQ(MPI_Win_complete(own.win), MPI_SUCCESS);
      if (round % 2 == 0) {
        EXPECT_EQ(MPI_Win_wait(own.win), MPI_SUCCESS);
      } else {
        for (int is_over = 0; is_over == 0;) MPI_Win_test(own.win, &is_over);
      }
      EXPECT_EQ(own.numbers[1], round + before);
    }
    for (MPI_Group* group : {&all, &from, &to}) MPI_Group_free(group);
  });
}

TEST_P(WindowOn, AnExclusiveLockKeepsOthersOut) {
  with_ranks([] {
    Numbers own(2);
    MPI_Barrier(MPI_COMM_WORLD);
    constexpr int rounds = 16;
    for (int round = 0; round < rounds; ++round) {
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, own.win);
      const int seen = own.get(0, 0);
      if (round % 8 == 0) this_task::yield();
      own.put(seen + 1, 0, 0);
      MPI_Win_unlock(0, own.win);
      MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, own.win);
      EXPECT_GT(own.get(0, 0), seen);
      MPI_Win_unlock(0, own.win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (own.rank == 0) {
      EXPECT_EQ(own.numbers[0], rounds * own.size);
    }
  });
}

TEST_P(WindowOn, RanksThatAskAgainAndAgainLetOthersRun) {
  with_ranks([] {
    Numbers own(2);
    MPI_Win_lock_all(0, own.win);
    const int next = (own.rank + 1) % own.size;
    const int one = 1;
    int before = 0;
    if (own.rank == 0) MPI_Fetch_and_op(&one, &before, MPI_INT, next, 0, MPI_SUM, own.win);
    for (int seen = 0; seen == 0; MPI_Win_flush(own.rank, own.win))
      MPI_Fetch_and_op(nullptr, &seen, MPI_INT, own.rank, 0, MPI_NO_OP, own.win);
    if (own.rank != 0) MPI_Fetch_and_op(&one, &before, MPI_INT, next, 0, MPI_SUM, own.win);
    MPI_Win_unlock_all(own.win);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(own.numbers[0], 1);
  });
}

// ---------------------------------------------------------------- what combines

TEST_P(WindowOn, ElementsAreCombinedOneAtATime) {
  with_ranks([] {
    Ranks own;
    constexpr int count = 3000;
    double* sums = nullptr;
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_allocate(count * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&sums),
                     &win);
    std::fill_n(sums, count, 0.0);
    MPI_Win_fence(0, win);
    const std::vector<double> ones(count, 1.0);
    MPI_Datatype every_other = MPI_DATATYPE_NULL;
    MPI_Type_vector(count / 2, 1, 2, MPI_DOUBLE, &every_other);
    MPI_Type_commit(&every_other);
    for (int round = 0; round < 10; ++round) {
      MPI_Accumulate(ones.data(), count, MPI_DOUBLE, 0, 0, count, MPI_DOUBLE, MPI_SUM, win);
      MPI_Accumulate(ones.data(), count / 2, MPI_DOUBLE, 0, 1, 1, every_other, MPI_SUM, win);
      MPI_Accumulate(ones.data(), 1, every_other, 0, 1, 1, every_other, MPI_SUM, win);
    }
    MPI_Win_fence(0, win);
    for (int i = 0; own.rank == 0 && i < count; ++i) EXPECT_EQ(sums[i], (i % 2 == 0 ? 10 : 30) * own.size);
    MPI_Win_lock_all(0, win);
    std::vector<int> tickets;
    for (int round = 0; round < 20; ++round) {
      const double one = 1;
      double ticket = -1;
      MPI_Fetch_and_op(&one, &ticket, MPI_DOUBLE, own.size - 1, 0, MPI_SUM, win);
      MPI_Win_flush(own.size - 1, win);
      tickets.push_back(static_cast<int>(ticket));
    }
    MPI_Win_unlock_all(win);
    std::vector<int> all(tickets.size() * static_cast<std::size_t>(own.size));
    MPI_Allgather(tickets.data(), 20, MPI_INT, all.data(), 20, MPI_INT, MPI_COMM_WORLD);
    std::ranges::sort(all);
    EXPECT_EQ(std::ranges::adjacent_find(all), all.end());  // nobody got another's
    MPI_Type_free(&every_other);
    MPI_Win_free(&win);
  });
}

TEST(Window, CompareAndSwapMakesALockOfTheProgram) {
  with_mpi({{6, 1}, 2}, [] {
    Numbers own(2);
    MPI_Win_lock_all(0, own.win);
    for (int round = 0; round < 20; ++round) {
      const int free = 0;
      const int taken = own.rank + 1;
      for (int seen = -1; seen != free; MPI_Win_flush(0, own.win))
        MPI_Compare_and_swap(&taken, &free, &seen, MPI_INT, 0, 0, own.win);
      own.put(own.get(0, 1) + 1, 0, 1);
      MPI_Win_flush(0, own.win);
      int seen = -1;
      MPI_Compare_and_swap(&free, &taken, &seen, MPI_INT, 0, 0, own.win);
      EXPECT_EQ(seen, taken);
    }
    MPI_Win_unlock_all(own.win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (own.rank == 0) {
      EXPECT_EQ(own.numbers[1], 20 * own.size);
    }
  });
}

TEST(Window, OperationsWorkOnAllTypesThatTheyAreFor) {
  with_mpi({{1, 1}, 1}, [] {
    struct Located {
      double value;
      int index;
    };
    std::array<Located, 4> memory{};
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_create(memory.data(), sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_fence(0, win);
    const std::array<Located, 3> given{Located{5, 1}, {-2, 2}, {7, 3}};
    EXPECT_EQ(MPI_Accumulate(given.data(), 3, MPI_DOUBLE_INT, 0, 0, 3, MPI_DOUBLE_INT, MPI_MAXLOC, win), MPI_SUCCESS);
    EXPECT_EQ(memory[0].index, 1);
    EXPECT_EQ(memory[1].value, 0);
    EXPECT_EQ(memory[2].value, 7);
    // Odd addresses, and an operand that lies in parts.
    auto* const bytes = reinterpret_cast<unsigned char*>(memory.data());
    std::fill_n(bytes, sizeof memory, 0);
    const std::int64_t number = 0x0102030405060708;
    std::int64_t before = -1;
    EXPECT_EQ(MPI_Fetch_and_op(&number, &before, MPI_INT64_T, 0, 3, MPI_SUM, win), MPI_SUCCESS);
    EXPECT_EQ(before, 0);
    EXPECT_EQ(MPI_Fetch_and_op(&number, &before, MPI_INT64_T, 0, 3, MPI_BXOR, win), MPI_SUCCESS);
    EXPECT_EQ(before, number);
    EXPECT_EQ(std::count(bytes, bytes + sizeof memory, 0), static_cast<std::ptrdiff_t>(sizeof memory));
    const double half = 0.5;
    EXPECT_EQ(class_of(MPI_Accumulate(&half, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, MPI_BAND, win)), MPI_ERR_OP);
    EXPECT_EQ(class_of(MPI_Accumulate(&half, 1, MPI_DOUBLE, 0, 0, 1, MPI_INT64_T, MPI_SUM, win)), MPI_ERR_TYPE);
    EXPECT_EQ(class_of(MPI_Compare_and_swap(&half, &half, &before, MPI_DOUBLE, 0, 0, win)), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Accumulate(&half, 1, MPI_DOUBLE, 0, 8, 1, MPI_DOUBLE, MPI_REPLACE, win), MPI_SUCCESS);
    double read = 0;
    EXPECT_EQ(
        MPI_Get_accumulate(nullptr, 0, MPI_DATATYPE_NULL, &read, 1, MPI_DOUBLE, 0, 8, 1, MPI_DOUBLE, MPI_NO_OP, win),
        MPI_SUCCESS);
    EXPECT_EQ(read, half);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
  });
}

// ---------------------------------------------------------------- kinds that depend on where ranks are

TEST_P(WindowOn, MemoryThatIsNotAttachedIsToldOf) {
  with_ranks([] {
    Ranks own;
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    std::array<int, 2> memory{};
    MPI_Win_attach(win, memory.data(), 4);
    const int next = (own.rank + 1) % own.size;
    const int before = (own.rank + own.size - 1) % own.size;
    MPI_Aint there = 0;
    MPI_Aint here = 0;
    MPI_Get_address(memory.data(), &here);
    MPI_Sendrecv(&here, 1, MPI_AINT, before, 0, &there, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_fence(0, win);
    const std::array<int, 2> given{own.rank, 7};
    std::array<int, 2> got{-1, -1};
    EXPECT_EQ(MPI_Put(given.data(), 1, MPI_INT, next, there, 1, MPI_INT, win), MPI_SUCCESS);
    EXPECT_EQ(MPI_Win_fence(0, win), MPI_SUCCESS);
    EXPECT_EQ(memory[0], before);
    EXPECT_EQ(class_of(MPI_Get(got.data(), 2, MPI_INT, next, there, 2, MPI_INT, win)), MPI_ERR_RMA_RANGE);
    // Another process tells of it with the fence.
    const int put = class_of(MPI_Put(given.data(), 2, MPI_INT, next, there, 2, MPI_INT, win));
    const int fence = class_of(MPI_Win_fence(0, win));
    EXPECT_EQ(std::max(put, fence), MPI_ERR_RMA_RANGE);
    EXPECT_EQ(std::min(put, fence), MPI_SUCCESS);
    EXPECT_EQ(memory[1], 0);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    // Or with MPI_Win_complete.
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group target = MPI_GROUP_NULL;
    MPI_Group origin = MPI_GROUP_NULL;
    MPI_Win_get_group(win, &all);
    MPI_Group_incl(all, 1, &next, &target);
    MPI_Group_incl(all, 1, &before, &origin);
    MPI_Win_post(origin, 0, win);
    MPI_Win_start(target, 0, win);
    const int second = class_of(MPI_Put(given.data(), 2, MPI_INT, next, there, 2, MPI_INT, win));
    const int complete = class_of(MPI_Win_complete(win));
    EXPECT_EQ(std::max(second, complete), MPI_ERR_RMA_RANGE);
    EXPECT_EQ(std::min(second, complete), MPI_SUCCESS);
    MPI_Win_wait(win);
    for (MPI_Group* const group : {&all, &target, &origin}) MPI_Group_free(group);
    EXPECT_EQ(MPI_Win_free(&win), MPI_SUCCESS);
  });
}

TEST_P(WindowOn, WhoOnlyReadsStoresNothing) {
  with_ranks([] {
    Ranks own;
    constexpr std::size_t bytes = 4096;
    void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_create(memory, bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(0, win);
    const int next = (own.rank + 1) % own.size;
    std::int64_t value = -1;
    MPI_Fetch_and_op(nullptr, &value, MPI_INT64_T, next, 3, MPI_NO_OP, win);
    EXPECT_EQ(value, 0);
    std::array<std::int16_t, 3> values{1, 2, 3};
    MPI_Get_accumulate(nullptr, 0, MPI_DATATYPE_NULL, values.data(), 3, MPI_INT16_T, next, 1, 3, MPI_INT16_T, MPI_NO_OP,
                       win);
    EXPECT_EQ(values, (std::array<std::int16_t, 3>{}));
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    munmap(memory, bytes);
  });
}

// More than one errand takes, and parts that lie anywhere.
TEST_P(WindowOn, LargeDataGoesFromTypeToType) {
  with_ranks([] {
    constexpr int count = 20'000;
    Numbers own(3 * count);
    MPI_Datatype every_third = MPI_DATATYPE_NULL;
    MPI_Type_vector(count, 1, 3, MPI_INT, &every_third);
    MPI_Type_commit(&every_third);
    const int next = (own.rank + 1) % own.size;
    const int before = (own.rank + own.size - 1) % own.size;
    std::vector<int> given(count);
    std::iota(given.begin(), given.end(), own.rank);
    MPI_Win_fence(0, own.win);
    MPI_Put(given.data(), count, MPI_INT, next, 0, 1, every_third, own.win);
    MPI_Put(given.data(), count, MPI_INT, next, 1, 1, every_third, own.win);
    MPI_Accumulate(given.data(), count, MPI_INT, next, 1, 1, every_third, MPI_SUM, own.win);
    MPI_Win_fence(0, own.win);
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(own.numbers[static_cast<std::size_t>(3 * i)], before + i);
      ASSERT_EQ(own.numbers[static_cast<std::size_t>(3 * i + 1)], 2 * (before + i));
    }
    std::vector<int> got(count);
    MPI_Get(got.data(), count, MPI_INT, next, 1, 1, every_third, own.win);
    for (int i = 0; i < count; ++i) ASSERT_EQ(got[static_cast<std::size_t>(i)], 2 * given[static_cast<std::size_t>(i)]);
    MPI_Win_fence(0, own.win);
    MPI_Type_free(&every_third);
  });
}

// ---------------------------------------------------------------- histories

/// Random calls of all ranks, in rounds, each on places of its own, so that a model can follow them.
class History {
 public:
  History(std::uint32_t seed, int size) : random_(seed), size_(size) {}

  static constexpr int places = 24;  ///< At each rank, for each rank.

  void round(const Numbers& own, std::vector<int>& model) {
    for (int calls = 0; calls < 12; ++calls) {
      for (int rank = 0; rank < size_; ++rank) call(own, rank, model);
    }
  }

 private:
  int pick(int end) { return static_cast<int>(random_() % static_cast<std::uint32_t>(end)); }

  // All ranks draw the same numbers, and one of them makes the call.
  void call(const Numbers& own, int rank, std::vector<int>& model) {
    const int target = pick(size_);
    const int count = 1 + pick(6);
    const int stride = 1 + pick(3);
    const int first = pick(places - count * stride + 1);
    const int what = pick(6);
    std::array<int, 6> values{};
    for (int& value : values) value = pick(1000) - 500;
    int* const there = model.data() + (target * size_ + rank) * places + first;
    std::array<int, 6> before{};
    for (int i = 0; i < count; ++i) before[static_cast<std::size_t>(i)] = there[i * stride];
    const std::array<MPI_Op, 4> ops = {MPI_SUM, MPI_MAX, MPI_BXOR, MPI_REPLACE};
    const auto op = static_cast<std::size_t>(pick(4));
    for (int i = 0; i < count; ++i) {
      int& place = there[i * stride];
      const int value = values[static_cast<std::size_t>(i)];
      if (what == 0) place = value;
      if (what < 2 || what > 4) continue;
      place = op == 0 ? place + value : op == 1 ? std::max(place, value) : op == 2 ? place ^ value : value;
    }
    if (rank == own.rank)
      make(own.win, target, own.rank * places + first, count, stride, what, ops[op], values, before);
  }

  static void make(MPI_Win win, int target, MPI_Aint place, int count, int stride, int what, MPI_Op op,
                   const std::array<int, 6>& values, const std::array<int, 6>& before) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_vector(count, 1, stride, MPI_INT, &type);
    MPI_Type_commit(&type);
    std::array<int, 6> got{};
    bool reads = false;
    int code = MPI_SUCCESS;
    if (what == 0) {
      code = MPI_Put(values.data(), count, MPI_INT, target, place, 1, type, win);
    } else if (what == 1) {
      code = MPI_Get(got.data(), count, MPI_INT, target, place, 1, type, win);
      reads = true;
    } else if (what == 2) {
      code = MPI_Accumulate(values.data(), count, MPI_INT, target, place, 1, type, op, win);
    } else if (what < 5) {
      code = MPI_Get_accumulate(values.data(), count, MPI_INT, got.data(), count, MPI_INT, target, place, 1, type, op,
                                win);
      reads = true;
    } else {
      code =
          MPI_Get_accumulate(nullptr, 0, MPI_INT, got.data(), count, MPI_INT, target, place, 1, type, MPI_NO_OP, win);
      reads = true;
    }
    EXPECT_EQ(code, MPI_SUCCESS);
    MPI_Type_free(&type);
    if (!reads) return;
    MPI_Win_flush(target, win);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) EXPECT_EQ(got[i], before[i]);
  }

  std::mt19937 random_;
  int size_;
};

TEST_P(WindowOn, RandomHistoriesAgreeWithAModel) {
  with_ranks([] {
    for (std::uint32_t seed = 1; seed <= 2; ++seed) {
      Ranks ranks;
      Numbers own(static_cast<std::size_t>(ranks.size * History::places));
      History history(seed, ranks.size);
      std::vector<int> model(static_cast<std::size_t>(ranks.size * ranks.size * History::places));
      MPI_Barrier(MPI_COMM_WORLD);
      for (int round = 0; round < 3; ++round) {
        MPI_Win_lock_all(0, own.win);
        history.round(own, model);
        MPI_Win_unlock_all(own.win);
        MPI_Barrier(MPI_COMM_WORLD);
        const auto mine = model.begin() + ranks.rank * ranks.size * History::places;
        EXPECT_TRUE(std::equal(own.numbers.begin(), own.numbers.end(), mine)) << "seed " << seed;
        MPI_Barrier(MPI_COMM_WORLD);
      }
    }
  });
}

// ---------------------------------------------------------------- kinds of windows, and what they tell

int attribute(MPI_Win win, int keyval) {
  int* value = nullptr;
  int is_there = 0;
  MPI_Win_get_attr(win, keyval, static_cast<void*>(&value), &is_there);
  return is_there == 1 ? *value : -1;
}

TEST(Window, SharedMemoryHasAttributes) {
  with_mpi({{4, 1}, 2}, [] {
    Ranks own;
    char* base = nullptr;
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_allocate_shared(16, own.rank + 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&base), &win);
    EXPECT_EQ(attribute(win, MPI_WIN_CREATE_FLAVOR), MPI_WIN_FLAVOR_SHARED);
    EXPECT_EQ(attribute(win, MPI_WIN_MODEL), MPI_WIN_UNIFIED);
    EXPECT_EQ(attribute(win, MPI_WIN_DISP_UNIT), own.rank + 1);
    MPI_Win_free(&win);
  });
}

TEST(Window, DynamicMemoryIsReachedWhileItIsAttached) {
  with_mpi({{2, 1}, 2}, [] {
    Ranks own;
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    std::array<int, 8> memory{};
    EXPECT_EQ(MPI_Win_attach(win, memory.data(), 16), MPI_SUCCESS);
    EXPECT_EQ(MPI_Win_attach(win, &memory[4], 16), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_Win_attach(win, &memory[3], 8)), MPI_ERR_RMA_ATTACH);
    EXPECT_EQ(class_of(MPI_Win_detach(win, &memory[1])), MPI_ERR_RMA_ATTACH);
    MPI_Aint address = 0;
    MPI_Get_address(memory.data(), &address);
    std::array<MPI_Aint, 2> addresses{};
    MPI_Allgather(&address, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD);
    const int other = 1 - own.rank;
    const MPI_Aint there = addresses[static_cast<std::size_t>(other)];
    const std::array<int, 8> given{1, 2, 3, 4, 5, 6, 7, 8};
    MPI_Win_fence(0, win);
    EXPECT_EQ(MPI_Put(given.data(), 8, MPI_INT, other, there, 8, MPI_INT, win), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_Put(given.data(), 8, MPI_INT, other, there + 4, 8, MPI_INT, win)), MPI_ERR_RMA_RANGE);
    MPI_Win_fence(0, win);
    EXPECT_EQ(memory, given);
    EXPECT_EQ(MPI_Win_detach(win, &memory[4]), MPI_SUCCESS);
    MPI_Win_fence(0, win);
    EXPECT_EQ(class_of(MPI_Put(given.data(), 5, MPI_INT, other, there, 5, MPI_INT, win)), MPI_ERR_RMA_RANGE);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
  });
}

TEST(Window, HasANameHintsAndAttributes) {
  with_mpi({{2, 1}, 1}, [] {
    Numbers own(3);
    EXPECT_EQ(attribute(own.win, MPI_WIN_SIZE), 12);
    void* base = nullptr;
    int is_there = 0;
    MPI_Win_get_attr(own.win, MPI_WIN_BASE, static_cast<void*>(&base), &is_there);
    EXPECT_EQ(base, own.numbers.data());
    std::array<char, MPI_MAX_OBJECT_NAME> name{};
    int length = -1;
    MPI_Win_get_name(own.win, name.data(), &length);
    EXPECT_EQ(length, 0);
    MPI_Win_set_name(own.win, "the numbers");
    MPI_Win_get_name(own.win, name.data(), &length);
    EXPECT_STREQ(name.data(), "the numbers");
    MPI_Info hints = MPI_INFO_NULL;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "no_locks", "true");
    MPI_Info_set(hints, "something", "else");
    MPI_Win_set_info(own.win, hints);
    MPI_Info_free(&hints);
    MPI_Win_get_info(own.win, &hints);
    MPI_Info_get(hints, "no_locks", MPI_MAX_OBJECT_NAME - 1, name.data(), &is_there);
    EXPECT_STREQ(name.data(), "true");
    MPI_Info_get(hints, "something", MPI_MAX_OBJECT_NAME - 1, name.data(), &is_there);
    EXPECT_EQ(is_there, 0);
    MPI_Info_free(&hints);
    int keyval = MPI_KEYVAL_INVALID;
    static int deleted = 0;
    const auto note_delete = [](MPI_Win, int, void*, void*) {
      ++deleted;
      return MPI_SUCCESS;
    };
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, note_delete, &keyval, nullptr);
    MPI_Win_set_attr(own.win, keyval, &length);
    EXPECT_EQ(attribute(own.win, keyval), length);
    const int before = deleted;
    MPI_Win_delete_attr(own.win, keyval);
    EXPECT_EQ(deleted, before + 1);
    EXPECT_EQ(attribute(own.win, keyval), -1);
    MPI_Win_free_keyval(&keyval);
  });
}

TEST(Window, CallsWithRequestsAreOverWhenTheseAre) {
  with_mpi({{2, 1}, 2}, [] {
    Numbers own(4);
    const int other = 1 - own.rank;
    MPI_Win_lock_all(0, own.win);
    std::array<MPI_Request, 4> requests{};
    const std::array<int, 2> given{own.rank + 10, own.rank + 20};
    std::array<int, 2> got{-1, -1};
    MPI_Rput(given.data(), 2, MPI_INT, other, 0, 2, MPI_INT, own.win, requests.data());
    MPI_Wait(requests.data(), MPI_STATUS_IGNORE);
    MPI_Raccumulate(given.data(), 1, MPI_INT, other, 2, 1, MPI_INT, MPI_SUM, own.win, requests.data());
    MPI_Rget(got.data(), 1, MPI_INT, other, 0, 1, MPI_INT, own.win, &requests[1]);
    MPI_Rget_accumulate(given.data(), 1, MPI_INT, &got[1], 1, MPI_INT, other, 1, 1, MPI_INT, MPI_SUM, own.win,
                        &requests[2]);
    MPI_Rput(given.data(), 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, own.win, &requests[3]);
    MPI_Waitall(4, requests.data(), MPI_STATUSES_IGNORE);
    EXPECT_EQ(got, given);
    MPI_Win_unlock_all(own.win);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(own.numbers, (std::vector<int>{other + 10, other + 20 + other + 10, other + 10, 0}));
    MPI_Barrier(MPI_COMM_WORLD);
  });
}

// ---------------------------------------------------------------- what is wrong

TEST(Window, WrongSynchronisationIsRefused) {
  with_mpi({{2, 1}, 1}, [] {
    Numbers own(2);
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Win_get_group(own.win, &group);
    const auto is_wrong = [](int code) { return class_of(code) == MPI_ERR_RMA_SYNC; };
    MPI_Request request = MPI_REQUEST_NULL;
    int value = 0;
    EXPECT_TRUE(is_wrong(own.put(1, 0, 0)));
    EXPECT_TRUE(is_wrong(MPI_Win_complete(own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_wait(own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_test(own.win, &value)));
    EXPECT_TRUE(is_wrong(MPI_Win_unlock(0, own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_unlock_all(own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_flush(0, own.win)));
    MPI_Win_fence(0, own.win);
    EXPECT_EQ(own.put(1, own.rank, 0), MPI_SUCCESS);
    EXPECT_TRUE(is_wrong(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, own.win)));
    EXPECT_TRUE(is_wrong(MPI_Rput(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, own.win, &request)));
    MPI_Win_fence(MPI_MODE_NOSUCCEED, own.win);
    EXPECT_TRUE(is_wrong(own.put(1, own.rank, 0)));
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, own.win);
    EXPECT_TRUE(is_wrong(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_lock_all(0, own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_start(group, 0, own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_fence(0, own.win)));
    EXPECT_TRUE(is_wrong(own.put(1, 1, 0)));
    EXPECT_TRUE(is_wrong(MPI_Win_flush(1, own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_free(&own.win)));
    MPI_Win_unlock(0, own.win);
    MPI_Win_post(group, 0, own.win);
    EXPECT_TRUE(is_wrong(MPI_Win_post(group, 0, own.win)));
    EXPECT_TRUE(is_wrong(MPI_Win_free(&own.win)));
    MPI_Win_start(group, 0, own.win);
    EXPECT_TRUE(is_wrong(MPI_Win_start(group, 0, own.win)));
    MPI_Win_complete(own.win);
    MPI_Win_wait(own.win);
    MPI_Group_free(&group);
  });
}

TEST(Window, WhatIsOutsideOfAWindowIsRefused) {
  with_mpi({{2, 1}, 1}, [] {
    Numbers own(4);
    MPI_Win_fence(0, own.win);
    const auto is_outside = [](int code) { return class_of(code) == MPI_ERR_RMA_RANGE; };
    EXPECT_EQ(own.put(1, 1, 3), MPI_SUCCESS);
    EXPECT_TRUE(is_outside(own.put(1, 1, 4)));
    EXPECT_TRUE(is_outside(own.put(1, 1, -1)));
    EXPECT_TRUE(is_outside(own.put(1, 1, INT64_MAX)));
    EXPECT_TRUE(is_outside(own.put(1, 1, INT64_MIN)));
    std::array<int, 8> values{};
    MPI_Datatype backwards = MPI_DATATYPE_NULL;
    MPI_Type_vector(2, 1, -1, MPI_INT, &backwards);
    MPI_Type_commit(&backwards);
    EXPECT_TRUE(is_outside(MPI_Put(values.data(), 2, MPI_INT, 1, 0, 1, backwards, own.win)));
    EXPECT_EQ(MPI_Put(values.data(), 2, MPI_INT, 1, 1, 1, backwards, own.win), MPI_SUCCESS);
    MPI_Type_free(&backwards);
    EXPECT_EQ(class_of(MPI_Put(values.data(), 3, MPI_INT, 1, 0, 2, MPI_INT, own.win)), MPI_ERR_TRUNCATE);
    EXPECT_EQ(class_of(MPI_Get(values.data(), 1, MPI_INT, 1, 0, 2, MPI_INT, own.win)), MPI_ERR_TRUNCATE);
    MPI_Win_fence(0, own.win);
  });
}

TEST(Window, WaitsForNobodyAreReported) {
  const Report report = run({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_create(nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    Ranks own;
    if (own.rank == 0) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (own.rank == 1) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
    MPI_Recv(nullptr, 0, MPI_INT, 1 - own.rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  });
  EXPECT_NE(report.exit_status, 0);
  EXPECT_NE(report.reason.find("MPI_Win_lock for rank 0 of a window of MPI_COMM_WORLD"), std::string::npos)
      << report.reason;
}

TEST(Window, ARankThatEndsWithALockIsToldOf) {
  const Report report = run({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    Ranks own;
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_create(nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (own.rank == 0) MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (own.rank == 0) return;  // without MPI_Finalize
    EXPECT_EQ(class_of(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win)), MPI_ERR_PROC_ABORTED);
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Win_get_group(win, &group);
    EXPECT_EQ(class_of(MPI_Win_start(group, 0, win)), MPI_ERR_PROC_ABORTED);
    MPI_Group_free(&group);
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST(Window, ARankOfAnotherProcessThatEndsIsToldOf) {
  const std::vector<std::uint32_t> cells{1, 2};
  Processes processes({3, 1}, CellMap::consecutive(cells), 1, {}, 1);
  const ProcessesOutcome outcome = processes.run([] {
    MPI_Init(nullptr, nullptr);
    Ranks own;
    MPI_Win win = MPI_WIN_NULL;
    MPI_Win_create(nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (own.rank == 0) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (own.rank == 0) return;  // without MPI_Finalize
    EXPECT_EQ(class_of(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win)), MPI_ERR_PROC_ABORTED);
    EXPECT_EQ(class_of(MPI_Win_lock_all(0, win)), MPI_ERR_PROC_ABORTED);
  });
  EXPECT_EQ(outcome.status, 0) << outcome.failure();
}

}  // namespace
}  // namespace aplib
