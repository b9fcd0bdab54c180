// SPDX-License-Identifier: MIT
#include "block.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

#include "task/switch.hpp"  // which sanitizer

namespace scg {
namespace {

TEST(Decomposition, PartsFollowEachOtherAndDifferByAtMostOne) {
  for (const int total : {1, 2, 7, 64, 300, 99'999}) {
    for (const int parts : {1, 2, 3, 7, 64}) {
      if (parts > total) continue;
      int next = 0;
      for (int i = 0; i < parts; ++i) {
        const Range part = part_of(total, parts, i);
        EXPECT_EQ(part.first, next);
        EXPECT_GE(part.count, total / parts);
        EXPECT_LE(part.count, (total + parts - 1) / parts);
        next = part.end();
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(Decomposition, BlocksKnowTheirNeighbours) {
  const Block corner = block_of({10, 9}, {3, 2}, 0, 0);
  EXPECT_FALSE(corner.has_west());
  EXPECT_TRUE(corner.has_east());
  EXPECT_FALSE(corner.has_south());
  EXPECT_TRUE(corner.has_north());
  const Block other = block_of({10, 9}, {3, 2}, 2, 1);
  EXPECT_TRUE(other.has_west());
  EXPECT_FALSE(other.has_east());
  EXPECT_TRUE(other.has_south());
  EXPECT_FALSE(other.has_north());
  EXPECT_EQ(other.x.end(), 10);
  EXPECT_EQ(other.y.end(), 9);
}

TEST(Decomposition, AsManyCellsAsUnknownsIsAllowed) { EXPECT_EQ(decomposition_problem({4, 3}, {4, 3}), ""); }

TEST(Decomposition, TooManyCellsAreRefusedWithTheLargestGridPossible) {
  EXPECT_EQ(
      decomposition_problem({3, 300}, {5, 2}),
      "5x2 cells cannot share a grid of 3x300 unknowns, because each cell needs at least one column and one row; the "
      "largest grid of cells possible is 3x300: use --cells 3x2 or a larger --grid");
  EXPECT_NE(decomposition_problem({300, 3}, {2, 4}), "");
}

TEST(FieldLayout, RowsStartOnCacheLinesAndHalosOverlapNothing) {
  for (int nx = 1; nx < 40; ++nx) {
    Field field(nx, 3);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(field.row(0)) % 64, 0U);
    EXPECT_EQ(field.stride() % cache_line_doubles, 0);
    EXPECT_GE(field.stride(), nx + 2) << "east halo and the next row's west halo must both fit";
  }
}

TEST(FieldLayout, SaysWhatItNeedsWhenMemoryCannotHoldIt) {
#if APLIB_ASAN || APLIB_TSAN
  GTEST_SKIP() << "needs a build without sanitizers: they end the program instead of refusing the memory";
#else
  try {
    const Field field(1 << 30, 1 << 20);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "scg: no memory for a block of 1073741824 x 1048576 unknowns, which takes 3 x 9007216.5 GB: use a "
                 "smaller --grid");
  }
#endif
}

}  // namespace
}  // namespace scg
