// SPDX-License-Identifier: MIT
#include "compile/command.hpp"

#include <gtest/gtest.h>

namespace aplib::compile {
namespace {

using Words = std::vector<std::string>;

TEST(ResponseFile, WordsArePartedByWhiteSpace) {
  EXPECT_EQ(split_arguments(" -c\ta.c\r\n-o a.o\n"), (Words{"-c", "a.c", "-o", "a.o"}));
  EXPECT_EQ(split_arguments(""), Words{});
  EXPECT_EQ(split_arguments(" \n"), Words{});
}

TEST(ResponseFile, QuotesAndBackslashesKeepCharacters) {
  EXPECT_EQ(split_arguments(R"('a b' "c'd" e\ f "g\"h" '')"), (Words{"a b", "c'd", "e f", "g\"h", ""}));
  EXPECT_EQ(split_arguments(R"(-DX="1 2")"), Words{"-DX=1 2"});
}

TEST(ResponseFile, UnreadableIsNone) { EXPECT_FALSE(read_response_file("/no/such/file")); }

}  // namespace
}  // namespace aplib::compile
