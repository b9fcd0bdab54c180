// SPDX-License-Identifier: MIT
#include "base/cell_map.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "aplib/ids.hpp"

namespace aplib {
namespace {

using Numbers = std::vector<std::uint32_t>;

Numbers cells_of(const CellMap& map, std::uint32_t process) {
  return {map.cells_of(process).begin(), map.cells_of(process).end()};
}

TEST(CellMap, OneProcessCarriesAll) {
  const CellMap map(3);
  EXPECT_EQ(map.processes(), 1U);
  EXPECT_EQ(map.cells(), 3U);
  EXPECT_EQ(cells_of(map, 0), (Numbers{0, 1, 2}));
  EXPECT_TRUE(map.carries(0, 2));
  EXPECT_FALSE(map.carries(0, 3));
  EXPECT_EQ(map.text(0), "cells 0-2");
}

TEST(CellMap, WithoutCells) {
  const CellMap map;
  EXPECT_EQ(map.processes(), 1U);
  EXPECT_EQ(map.cells(), 0U);
  EXPECT_FALSE(map.carries(0, 0));
  EXPECT_EQ(map.text(0), "no cells");
}

TEST(CellMap, ConsecutiveFromCounts) {
  const CellMap map = CellMap::consecutive(std::array<std::uint32_t, 4>{4, 0, 1, 2});
  EXPECT_EQ(map.processes(), 4U);
  EXPECT_EQ(map.cells(), 7U);
  EXPECT_EQ(map.text(0), "cells 0-3");
  EXPECT_EQ(map.text(1), "no cells");
  EXPECT_EQ(map.text(2), "cell 4");
  EXPECT_EQ(map.text(3), "cells 5-6");
  EXPECT_EQ(map.process_of(3), 0U);
  EXPECT_EQ(map.process_of(4), 2U);
  EXPECT_EQ(map.local_index(6), 1U);
}

TEST(CellMap, AnyAssignment) {
  const Numbers processes{0, 2, 1, 0, 0, 0, 2};
  const CellMap map = CellMap::of(3, processes);
  EXPECT_EQ(cells_of(map, 0), (Numbers{0, 3, 4, 5}));
  EXPECT_EQ(cells_of(map, 1), (Numbers{2}));
  EXPECT_EQ(cells_of(map, 2), (Numbers{1, 6}));
  EXPECT_EQ(map.text(0), "cells 0, 3-5");
  EXPECT_EQ(map.text(2), "cells 1, 6");
  for (std::uint32_t cell = 0; cell < map.cells(); ++cell) {
    EXPECT_EQ(map.process_of(cell), processes[cell]);
    EXPECT_EQ(map.cells_of(processes[cell])[map.local_index(cell)], cell);
    for (std::uint32_t process = 0; process < 3; ++process)
      EXPECT_EQ(map.carries(process, cell), process == processes[cell]);
  }
}

TEST(CellMap, SharedAgainKeepsProportions) {
  const CellMap map = CellMap::consecutive(std::array<std::uint32_t, 3>{6, 0, 2});
  EXPECT_EQ(map.shared_again(16), CellMap::consecutive(std::array<std::uint32_t, 3>{12, 0, 4}));
  EXPECT_EQ(map.shared_again(1).cells(), 1U);
  EXPECT_EQ(map.shared_again(1).processes(), 3U);
  const Numbers turns{0, 1, 0, 1};
  EXPECT_EQ(CellMap::of(2, turns).shared_again(6), CellMap::consecutive(std::array<std::uint32_t, 2>{3, 3}));
}

TEST(CellMap, WordsAndBack) {
  for (const Numbers& processes : {Numbers{}, Numbers{0}, Numbers{0, 0, 1, 1, 3}, Numbers{3, 2, 1, 0, 1, 2, 3, 3}}) {
    const CellMap map = CellMap::of(4, processes);
    const std::optional<CellMap> back = CellMap::from_words(map.words());
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(*back, map);
  }
}

TEST(CellMap, StrangersWordsAreChecked) {
  for (const Numbers& words : {Numbers{}, Numbers{0}, Numbers{CellMap::processes_max + 1}, Numbers{2, 0},
                               Numbers{2, 2, 1}, Numbers{2, 0, 0}, Numbers{2, 0, cell_count_max + 1},
                               Numbers{1, 0, 0xffff'ffff}, Numbers{2, 0, cell_count_max, 1, 1}, Numbers{2, 0, 1, 1}}) {
    EXPECT_FALSE(CellMap::from_words(words).has_value()) << testing::PrintToString(words);
  }
  EXPECT_TRUE(CellMap::from_words(Numbers{2, 0, cell_count_max}).has_value());
}

TEST(CellMap, RangesOfNumbers) {
  EXPECT_EQ(ranges_text(Numbers{}), "");
  EXPECT_EQ(ranges_text(Numbers{7}), "7");
  EXPECT_EQ(ranges_text(Numbers{0, 1}), "0-1");
  EXPECT_EQ(ranges_text(Numbers{0, 2, 3, 4, 9}), "0, 2-4, 9");
}

}  // namespace
}  // namespace aplib
