// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "cell/cell.hpp"

namespace aplib {
namespace {

// The table only keeps pointers, so any address will do.
TaskControl& stand_in(std::uint32_t id) {
  constexpr std::uint32_t id_max = 1U << 14U;
  alignas(TaskControl) static char memory[std::size_t{id_max} * alignof(TaskControl)];
  if (id >= id_max) std::abort();
  return *reinterpret_cast<TaskControl*>(&memory[id * alignof(TaskControl)]);
}

TEST(TaskTable, GivesFreeIdsOnlyAndRestsThoseThatWereUsed) {
  std::mt19937 random(7);
  TaskTable table;
  std::set<std::uint32_t> used;
  for (int step = 0; step < 200'000; ++step) {
    if (used.size() < 50 || random() % 2 == 0) {
      std::uint32_t id = 0;
      if (random() % 16 == 0) {
        id = 1 + random() % 3000;
        if (table.find(id) != nullptr) continue;
      } else {
        const auto chosen = table.choose_id();
        ASSERT_TRUE(chosen.has_value());
        id = *chosen;
      }
      ASSERT_NE(id, 0U);
      ASSERT_TRUE(used.insert(id).second) << id;
      table.make_room(id);
      table.insert(id, stand_in(id));
    } else {
      auto victim = used.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(random() % std::min<std::size_t>(used.size(), 20)));
      table.erase(*victim);
      used.erase(victim);
    }
    ASSERT_EQ(table.size(), used.size());
    if (used.size() > 300) {
      while (used.size() > 50) {
        table.erase(*used.begin());
        used.erase(used.begin());
      }
    }
  }
  for (std::uint32_t id = 0; id < table.end(); ++id) {
    EXPECT_EQ(table.find(id) != nullptr, used.contains(id)) << id;
    EXPECT_TRUE(table.find(id) == nullptr || table.find(id) == &stand_in(id)) << id;
  }
  for (const std::uint32_t id : used) table.erase(id);
  EXPECT_EQ(table.find(task_id_max), nullptr);
}

TEST(TaskTable, AFreedIdIsNotGivenAgainAtOnce) {
  TaskTable table;
  const std::uint32_t first = *table.choose_id();
  EXPECT_EQ(first, 1U);
  table.insert(first, stand_in(first));
  table.erase(first);
  for (std::size_t i = 0; i < TaskTable::id_rest; ++i) {
    const std::uint32_t id = *table.choose_id();
    EXPECT_NE(id, first);
    table.insert(id, stand_in(id));
    table.erase(id);
  }
}

}  // namespace
}  // namespace aplib
