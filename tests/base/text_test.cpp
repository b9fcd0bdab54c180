// SPDX-License-Identifier: MIT
#include "base/text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>

namespace aplib::text {
namespace {

using namespace std::chrono_literals;

TEST(Text, Numbers) {
  EXPECT_EQ(parse_number("0"), 0U);
  EXPECT_EQ(parse_number("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  for (const char* text : {"", "18446744073709551616", "-1", "+1", " 1", "1 ", "0x10", "1e3"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

TEST(Text, Sizes) {
  EXPECT_EQ(parse_size("17"), 17U);
  EXPECT_EQ(parse_size("2k"), 2048U);
  EXPECT_EQ(parse_size("3M"), 3U << 20);
  EXPECT_EQ(parse_size("17179869183g"), 17179869183ULL << 30);
  for (const char* text : {"", "g", "17179869184g", "1kb", "1t", "1.5k", "-1k"})
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  EXPECT_EQ(print_size(0), "0");
  EXPECT_EQ(print_size(1), "1");
  EXPECT_EQ(print_size(1536 * 1024), "1536k");
}

TEST(Text, Durations) {
  EXPECT_EQ(parse_duration("0"), 0ns);
  EXPECT_EQ(parse_duration("7ns"), 7ns);
  EXPECT_EQ(parse_duration("20US"), 20us);
  EXPECT_EQ(parse_duration("9223372036s"), 9223372036s);
  for (const char* text : {"", "us", "5", "1m", "9223372037s", "-1s", "1.5ms", "1 ms"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
  EXPECT_EQ(print_duration(60s), "60s");
  EXPECT_EQ(print_duration(1500us), "1500us");
  EXPECT_EQ(print_duration(-2ms), "-2ms");
}

TEST(Text, WhatIsPrintedIsReadBack) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t value = random() >> (1 + random() % 63) << (random() % 20) >> 1;
    EXPECT_EQ(parse_size(print_size(value)), value);
    const std::chrono::nanoseconds time(static_cast<std::int64_t>(value));
    EXPECT_EQ(parse_duration(print_duration(time)), time);
  }
}

TEST(Text, JsonStrings) {
  EXPECT_EQ(json_string("a\"b\\c\n\x01"), R"("a\"b\\c\n\u0001")");
  EXPECT_EQ(json_text("\n\t\r\b\f/\x1f\x7f"), "\\n\\t\\r\\b\\f/\\u001f\x7f");
  EXPECT_EQ(json_text("gr\u00fc\u00df\U0001f600"), "gr\u00fc\u00df\U0001f600");
  EXPECT_EQ(json_text("\xff|\xc3"), R"(\ufffd|\ufffd)") << "not UTF-8";
  EXPECT_EQ(json_text("\xc0\xaf"), R"(\ufffd\ufffd)") << "longer than it need be";
  EXPECT_EQ(json_text("\xed\xa0\x80"), R"(\ufffd\ufffd\ufffd)") << "half of a pair is no character";
}

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("thread", "threads"), 1U);
  EXPECT_EQ(edit_distance("bidn", "bind"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Text, NearestPrefersTheCloserAndRefusesTheFar) {
  constexpr std::array<std::string_view, 3> names{"bind", "balance", "stack-size"};
  EXPECT_EQ(nearest("bin", names), "bind");
  EXPECT_EQ(nearest("balanc", names), "balance");
  EXPECT_EQ(nearest("stack", names), "stack-size");
  EXPECT_EQ(nearest("binding", names), "bind");
  EXPECT_EQ(nearest("colour", names), std::nullopt);
  EXPECT_EQ(nearest("", names), std::nullopt);
  EXPECT_EQ(nearest("bind", {}), std::nullopt);
  constexpr std::array<std::string_view, 3> short_ones{"c", "n", "np"};
  EXPECT_EQ(nearest("n", short_ones), "n");
  EXPECT_EQ(nearest("nq", short_ones), "n");
  EXPECT_EQ(nearest("y", short_ones), std::nullopt);
  EXPECT_EQ(nearest("cpu_bind", short_ones), std::nullopt);
}

}  // namespace
}  // namespace aplib::text
