// SPDX-License-Identifier: MIT
// What a debugger reads: the namespaces after ld.so's, and our images in the last of them.
#include <gtest/gtest.h>
#include <link.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compile.hpp"
#include "loader/known_images.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

struct Seen {
  const void* base;
  std::string path;
  const void* dynamic;
};

/// Walks the lists as a debugger does: DT_DEBUG's list, then those that follow. Every entry's backward link must be
/// right.
std::vector<Seen> images_in_debugger() {
  std::vector<Seen> seen;
  const auto* space = static_cast<const r_debug_extended*>(aplib_debugger_counts.space);
  if (space == nullptr) return seen;
  EXPECT_EQ(space->base.r_version, 2);
  const link_map* previous = nullptr;
  for (const link_map* map = space->base.r_map; map != nullptr; previous = map, map = map->l_next) {
    EXPECT_EQ(map->l_prev, previous);
    seen.push_back({reinterpret_cast<const void*>(map->l_addr), map->l_name, map->l_ld});
  }
  return seen;
}

bool shows(const std::vector<Seen>& seen, const LoadedImage& image) {
  return std::ranges::any_of(seen, [&image](const Seen& one) {
    return one.base == image.base && one.path == image.file->path() &&
           one.dynamic == image.base + image.file->dynamic_address();
  });
}

class DebuggerListTest : public ::testing::Test {
 protected:
  void TearDown() override { limit_debugger_list(64); }
  Workshop shop;
};

TEST_F(DebuggerListTest, instances_come_and_go) {
  const auto program = Program::load(shop.compile("int main(void) { return 0; }", {"-shared"}, "p.so"));
  RecordingHost host;
  auto first = make_instance(program, host, 0);
  auto second = make_instance(program, host, 1);
  if (aplib_debugger_counts.space == nullptr) GTEST_SKIP() << "needs an ld.so with a list of namespaces";
  EXPECT_TRUE(shows(images_in_debugger(), first->images().front()));
  EXPECT_TRUE(shows(images_in_debugger(), second->images().front()));
  const LoadedImage gone = first->images().front();
  first.reset();
  EXPECT_FALSE(shows(images_in_debugger(), gone));
  EXPECT_TRUE(shows(images_in_debugger(), second->images().front()));
  second.reset();
  EXPECT_TRUE(images_in_debugger().empty());
  EXPECT_EQ(aplib_debugger_counts.listed, 0U);
}

TEST_F(DebuggerListTest, the_namespace_follows_those_of_the_dynamic_linker) {
  const auto program = Program::load(shop.compile("int main(void) { return 0; }", {"-shared"}, "p.so"));
  RecordingHost host;
  const auto instance = make_instance(program, host, 0);
  const void* const ours = aplib_debugger_counts.space;
  if (ours == nullptr) GTEST_SKIP() << "needs an ld.so with a list of namespaces";
  bool found = false;
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_DEBUG) continue;
    for (auto* space = reinterpret_cast<const r_debug_extended*>(entry->d_un.d_ptr); space != nullptr;
         space = space->r_next)
      found = found || space == ours;
  }
  EXPECT_TRUE(found);
}

TEST_F(DebuggerListTest, what_is_left_out_is_counted) {
  const auto program = Program::load(shop.compile("int main(void) { return 0; }", {"-shared"}, "p.so"));
  RecordingHost host;
  limit_debugger_list(2);
  std::vector<std::unique_ptr<Instance>> instances;
  for (std::uint32_t cell = 0; cell < 5; ++cell) instances.push_back(make_instance(program, host, cell));
  if (aplib_debugger_counts.space == nullptr) GTEST_SKIP() << "needs an ld.so with a list of namespaces";
  EXPECT_EQ(aplib_debugger_counts.listed, 2U);
  EXPECT_EQ(aplib_debugger_counts.left_out, 3U);
  EXPECT_EQ(images_in_debugger().size(), 2U);
  instances.clear();
  EXPECT_EQ(aplib_debugger_counts.listed, 0U);
  EXPECT_EQ(aplib_debugger_counts.left_out, 0U);
}

}  // namespace
}  // namespace aplib::loader::test
