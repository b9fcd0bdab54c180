// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace scg {
namespace {

TEST(GridOption, TakesOneNumberOrTwo) {
  EXPECT_EQ(parse_grid("300"), (GridSize{300, 300}));
  EXPECT_EQ(parse_grid("400x3"), (GridSize{400, 3}));
}

TEST(GridOption, RefusesEverythingElseInWords) {
  for (const char* text :
       {"", "0", "-3", "3x", "x3", "3x0", "3x4x5", "3 x 4", "1e3", "100001", "99999999999999999999"}) {
    try {
      (void)parse_grid(text);
      ADD_FAILURE() << "accepted \"" << text << "\"";
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), "\"" + std::string(text) +
                                  "\" is not a grid: use N or NXxNY with 1 to 100000 unknowns in each direction, for "
                                  "example 300 or 400x300");
    }
  }
}

}  // namespace
}  // namespace scg
