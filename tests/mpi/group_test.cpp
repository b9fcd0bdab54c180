// SPDX-License-Identifier: MIT
// Groups against a naive model: a group is a list of cells.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;
using List = std::vector<int>;

constexpr int cells = 12;

/// The cells of a group, by translation to MPI_COMM_WORLD's.
List cells_of(MPI_Group group) {
  int size = 0;
  MPI_Group world = MPI_GROUP_NULL;
  EXPECT_EQ(MPI_Group_size(group, &size), MPI_SUCCESS);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  List ranks(static_cast<std::size_t>(size));
  List result(ranks.size());
  for (int i = 0; i < size; ++i) ranks[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(MPI_Group_translate_ranks(group, size, ranks.data(), world, result.data()), MPI_SUCCESS);
  MPI_Group_free(&world);
  return result;
}

bool has(const List& list, int cell) { return std::ranges::count(list, cell) != 0; }

struct Pair {
  MPI_Group group = MPI_GROUP_NULL;
  List model;
};

class Walk {
 public:
  explicit Walk(std::uint64_t seed) : random_(seed) {
    Pair world;
    MPI_Comm_group(MPI_COMM_WORLD, &world.group);
    for (int i = 0; i < cells; ++i) world.model.push_back(i);
    groups_.push_back(world);
    groups_.push_back({MPI_GROUP_EMPTY, {}});
  }
  ~Walk() {
    for (Pair& pair : groups_) {
      MPI_Group_free(&pair.group);
      EXPECT_EQ(pair.group, MPI_GROUP_NULL);
    }
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  void step() {
    const Pair& a = some();
    const Pair& b = some();
    Pair made;
    switch (below(7)) {
      case 0:
        made = joined(a, b);
        break;
      case 1:
        made = common(a, b);
        break;
      case 2:
        made = rest(a, b);
        break;
      case 3:
        made = listed(a);
        break;
      case 4:
        made = left_out(a);
        break;
      case 5:
        made = ranged(a);
        break;
      default:
        compare(a, b);
        return;
    }
    EXPECT_EQ(cells_of(made.group), made.model);
    const bool is_empty = made.model.empty();
    EXPECT_EQ(made.group == MPI_GROUP_EMPTY, is_empty);
    int rank = 0;
    MPI_Group_rank(made.group, &rank);
    const auto place = std::ranges::find(made.model, static_cast<int>(index(this_cell::id())));
    EXPECT_EQ(rank, place == made.model.end() ? MPI_UNDEFINED : static_cast<int>(place - made.model.begin()));
    groups_.push_back(made);
  }

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }
  const Pair& some() { return groups_[random_() % groups_.size()]; }

  static Pair joined(const Pair& a, const Pair& b) {
    Pair made{MPI_GROUP_NULL, a.model};
    for (const int cell : b.model) {
      if (!has(a.model, cell)) made.model.push_back(cell);
    }
    EXPECT_EQ(MPI_Group_union(a.group, b.group, &made.group), MPI_SUCCESS);
    return made;
  }
  static Pair common(const Pair& a, const Pair& b) {
    Pair made;
    for (const int cell : a.model) {
      if (has(b.model, cell)) made.model.push_back(cell);
    }
    EXPECT_EQ(MPI_Group_intersection(a.group, b.group, &made.group), MPI_SUCCESS);
    return made;
  }
  static Pair rest(const Pair& a, const Pair& b) {
    Pair made;
    for (const int cell : a.model) {
      if (!has(b.model, cell)) made.model.push_back(cell);
    }
    EXPECT_EQ(MPI_Group_difference(a.group, b.group, &made.group), MPI_SUCCESS);
    return made;
  }

  /// Some ranks of a group in any order, each once.
  List some_ranks(const Pair& of) {
    List ranks;
    for (int i = 0; i < static_cast<int>(of.model.size()); ++i) ranks.push_back(i);
    std::ranges::shuffle(ranks, random_);
    ranks.resize(static_cast<std::size_t>(below(static_cast<int>(ranks.size()) + 1)));
    return ranks;
  }
  Pair listed(const Pair& a) {
    Pair made;
    const List ranks = some_ranks(a);
    for (const int rank : ranks) made.model.push_back(a.model[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(MPI_Group_incl(a.group, static_cast<int>(ranks.size()), ranks.data(), &made.group), MPI_SUCCESS);
    return made;
  }
  Pair left_out(const Pair& a) {
    Pair made;
    const List ranks = some_ranks(a);
    for (int i = 0; i < static_cast<int>(a.model.size()); ++i) {
      if (!has(ranks, i)) made.model.push_back(a.model[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(MPI_Group_excl(a.group, static_cast<int>(ranks.size()), ranks.data(), &made.group), MPI_SUCCESS);
    return made;
  }
  /// One range up or down, included or excluded.
  Pair ranged(const Pair& a) {
    Pair made;
    if (a.model.empty()) return {MPI_GROUP_EMPTY, {}};
    const int size = static_cast<int>(a.model.size());
    int range[1][3] = {{below(size), below(size), (1 + below(3)) * (below(2) == 0 ? 1 : -1)}};
    List ranks;
    for (int i = range[0][0]; range[0][2] > 0 ? i <= range[0][1] : i >= range[0][1]; i += range[0][2]) {
      ranks.push_back(i);
    }
    if (below(2) == 0) {
      for (const int rank : ranks) made.model.push_back(a.model[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(MPI_Group_range_incl(a.group, 1, range, &made.group), MPI_SUCCESS);
    } else {
      for (int i = 0; i < size; ++i) {
        if (!has(ranks, i)) made.model.push_back(a.model[static_cast<std::size_t>(i)]);
      }
      EXPECT_EQ(MPI_Group_range_excl(a.group, 1, range, &made.group), MPI_SUCCESS);
    }
    return made;
  }
  static void compare(const Pair& a, const Pair& b) {
    List sorted_a = a.model;
    List sorted_b = b.model;
    std::ranges::sort(sorted_a);
    std::ranges::sort(sorted_b);
    int result = 0;
    EXPECT_EQ(MPI_Group_compare(a.group, b.group, &result), MPI_SUCCESS);
    EXPECT_EQ(result, a.model == b.model ? MPI_IDENT : sorted_a == sorted_b ? MPI_SIMILAR : MPI_UNEQUAL);
    for (int i = 0; i < static_cast<int>(a.model.size()); ++i) {
      int there = 0;
      MPI_Group_translate_ranks(a.group, 1, &i, b.group, &there);
      const auto place = std::ranges::find(b.model, a.model[static_cast<std::size_t>(i)]);
      EXPECT_EQ(there, place == b.model.end() ? MPI_UNDEFINED : static_cast<int>(place - b.model.begin()));
    }
  }

  std::mt19937_64 random_;
  std::vector<Pair> groups_;
};

TEST(Group, EveryWalkOfOperationsAgreesWithLists) {
  const std::uint64_t first = std::random_device{}();
  run_well({{4, 3}, 2}, [first] {
    MPI_Init(nullptr, nullptr);
    for (std::uint64_t seed = first; seed < first + scaled(200); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed + me()));
      Walk walk(seed + me());
      for (int i = 0; i < 60; ++i) walk.step();
      if (testing::Test::HasFailure()) break;
    }
    MPI_Finalize();
  });
}

TEST(Group, WrongRanksAndHandlesAreRefused) {
  run_well({{4, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group made = MPI_GROUP_NULL;
    const std::array<int, 2> outside{0, 4};
    const std::array<int, 2> twice{2, 2};
    EXPECT_EQ(MPI_Group_incl(world, 2, outside.data(), &made), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Group_excl(world, 2, twice.data(), &made), MPI_ERR_RANK);
    EXPECT_EQ(MPI_Group_incl(world, -1, outside.data(), &made), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Group_incl(world, 1, nullptr, &made), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Group_incl(world, 1, outside.data(), nullptr), MPI_ERR_ARG);
    int standing[1][3] = {{0, 3, 0}};
    EXPECT_EQ(MPI_Group_range_incl(world, 1, standing, &made), MPI_ERR_ARG);
    int beyond[1][3] = {{0, 2147483647, 2147483647}};
    EXPECT_EQ(MPI_Group_range_excl(world, 1, beyond, &made), MPI_ERR_RANK);
    EXPECT_EQ(made, MPI_GROUP_NULL);
    const int nobody = MPI_PROC_NULL;
    int there = 0;
    EXPECT_EQ(MPI_Group_translate_ranks(world, 1, &nobody, world, &there), MPI_SUCCESS);
    EXPECT_EQ(there, MPI_PROC_NULL);
    EXPECT_EQ(MPI_Group_translate_ranks(world, 1, &nobody, world, nullptr), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Group_translate_ranks(world, 0, nullptr, world, nullptr), MPI_SUCCESS);
    int size = 0;
    EXPECT_EQ(MPI_Group_size(MPI_GROUP_NULL, &size), MPI_ERR_GROUP);
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    EXPECT_EQ(MPI_Group_size(reinterpret_cast<MPI_Group>(info), &size), MPI_ERR_GROUP);
    MPI_Info_free(&info);
    MPI_Group_free(&world);
    EXPECT_EQ(MPI_Group_free(&world), MPI_ERR_GROUP);
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
