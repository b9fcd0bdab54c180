// SPDX-License-Identifier: MIT
// Entries by name: which function is meant.
#include "loader/entry.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "checks.hpp"

namespace aplib::loader {
namespace {

using Strings = std::vector<std::string>;

/// The text of the Error(bad_option) that `action` throws.
template <class Action>
std::string error_of(Action action) {
  return testing_support::error_text(action, Errc::bad_option);
}

TEST(FindFunction, BySymbolByNameOrNotAtAll) {
  const std::vector<std::string_view> functions{"_Z4stepd",  "_Z4stepi", "_ZN4math5solveEid", "_init",
                                                "cell_main", "solve",    "solve_all"};
  const auto find = [&](std::string_view name) { return std::string(find_function(name, functions, "heat.so")); };
  EXPECT_EQ(find("solve"), "solve");
  EXPECT_EQ(find("math::solve"), "_ZN4math5solveEid");
  EXPECT_EQ(find("_Z4stepi"), "_Z4stepi");
  EXPECT_EQ(
      error_of([&] { find("step"); }),
      "heat.so has several functions step: step(double) (_Z4stepd), step(int) (_Z4stepi); name one by its symbol, "
      "in parentheses");
  EXPECT_EQ(error_of([&] { find("sovle"); }),
            "heat.so has no function sovle (did you mean solve?); it offers solve, step, solve_all, math::solve, "
            "cell_main");
  EXPECT_EQ(error_of([] { (void)find_function("f", {}, "empty.so"); }),
            "empty.so has no function f; it offers no functions at all");
}

TEST(FindFunction, LongListsAreCut) {
  Strings names;
  for (int i = 0; i < 100; ++i) names.push_back("function_" + std::to_string(i));
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string text = error_of([&] { (void)find_function("nothing_like_it_at_all", views, "large.so"); });
  EXPECT_TRUE(text.ends_with(" and 80 more")) << text;
}

}  // namespace
}  // namespace aplib::loader
