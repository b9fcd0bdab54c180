// SPDX-License-Identifier: MIT
// The table of what programs get from APlib instead of libc is consistent and documented.
#include "loader/libc/bindings.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace aplib::loader {
namespace {

TEST(Bindings, NoTwoHaveOneNameAndEachLeadsSomewhere) {
  std::set<std::string_view> names;
  for (const libc::Binding& each : libc::all_bindings()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name << " is bound twice";
    EXPECT_EQ(libc::find_binding(each.name), &each) << each.name;
    switch (each.kind) {
      case libc::Binding::Kind::function:
        EXPECT_NE(each.function, nullptr) << each.name;
        break;
      case libc::Binding::Kind::datum:
        EXPECT_NE(each.place, nullptr) << each.name;
        EXPECT_NE(each.give_room, nullptr) << each.name;
        EXPECT_GT(each.bytes, 0U) << each.name;
        break;
    }
  }
  EXPECT_EQ(libc::find_binding("no such name"), nullptr);
}

TEST(Bindings, EachIsNamedInTheDocumentation) {
  std::ifstream file(APLIB_TEST_DOCS "/privatization.md");
  ASSERT_TRUE(file) << "docs/privatization.md is missing";
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  // Names stand in backquotes, several in one pair: `rand srand random`.
  std::set<std::string> documented;
  const std::regex quoted("`([^`]*)`");
  for (std::sregex_iterator match(page.begin(), page.end(), quoted), end; match != end; ++match) {
    std::istringstream words((*match)[1].str());
    for (std::string word; words >> word;) documented.insert(word);
  }
  for (const libc::Binding& each : libc::all_bindings())
    EXPECT_TRUE(documented.contains(std::string(each.name)))
        << each.name << ": say in docs/privatization.md what it does in an instance";
}

}  // namespace
}  // namespace aplib::loader
