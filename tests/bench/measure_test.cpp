// SPDX-License-Identifier: MIT
// The arithmetic of apbench: quantiles, the order of samples, and sizes and numbers as text.
#include "measure.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "report.hpp"

namespace apbench {
namespace {

TEST(Summary, OfOneValueIsThatValue) {
  const Summary s = summarize({7});
  EXPECT_EQ(s.median, 7);
  EXPECT_EQ(s.low, 7);
  EXPECT_EQ(s.high, 7);
}

TEST(Summary, MedianAndTenthAndNinetiethPercentileOfUnsortedValues) {
  const Summary s = summarize({10, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5});
  EXPECT_DOUBLE_EQ(s.median, 5);
  EXPECT_DOUBLE_EQ(s.low, 1);
  EXPECT_DOUBLE_EQ(s.high, 9);
}

TEST(Summary, InterpolatesBetweenNeighbours) { EXPECT_DOUBLE_EQ(summarize({1, 2}).median, 1.5); }

Measurement counting(const std::string& name, std::string* order, double seconds) {
  return {.bench = "test",
          .case_name = name,
          .bytes = 0,
          .unit = "ns",
          .run =
              [name, order, seconds](std::uint64_t count) {
                *order += name;
                return seconds * static_cast<double>(count);
              },
          .value = nanoseconds_per_operation};
}

TEST(Measure, TakesSamplesInTurns) {
  std::string order;
  const auto results =
      measure({counting("a", &order, 1), counting("b", &order, 2)}, {.samples = 3, .sample_seconds = 0});
  EXPECT_EQ(order, "ababab");
  ASSERT_EQ(results.size(), 2U);
  EXPECT_DOUBLE_EQ(results[0].summary.median, 1e9);
  EXPECT_DOUBLE_EQ(results[1].summary.median, 2e9);
}

TEST(Measure, FillsTheTimeOfASample) {
  std::string order;
  std::uint64_t last = 0;
  Measurement m = counting("a", &order, 0);
  m.run = [&last](std::uint64_t count) {
    last = count;
    return 1e-6 * static_cast<double>(count);
  };
  (void)measure({m}, {.samples = 1, .sample_seconds = 0.01});
  EXPECT_GT(last, 9'000U);
  EXPECT_LT(last, 11'000U);
}

TEST(Measure, TakesFewerSamplesOfWhatIsLong) {
  std::string order;
  Measurement rare = counting("r", &order, 1);
  rare.samples_max = 1;
  (void)measure({counting("a", &order, 1), rare}, {.samples = 3, .sample_seconds = 0});
  EXPECT_EQ(order, "araa");
}

TEST(Report, JsonLineIsTheInterface) {
  EXPECT_EQ(
      json_line({"latency", "two-processors", 8, {71.84, 70.91, 74}, "ns"}),
      R"({"bench":"latency","case":"two-processors","bytes":8,"value":71.84,"low":70.91,"high":74.00,"unit":"ns"})");
}

TEST(Report, NumbersHaveNoExponent) {
  EXPECT_EQ(number(0.05), "0.050");
  EXPECT_EQ(number(123.456), "123.5");
  EXPECT_EQ(number(1.5e9), "1500000000");
  EXPECT_THROW((void)number(std::numeric_limits<double>::infinity()), std::runtime_error);
}

TEST(Report, SizesAsText) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("8"), 8U);
  EXPECT_EQ(parse_bytes("64k"), 65536U);
  EXPECT_EQ(parse_bytes("1M"), 1048576U);
  for (const char* wrong : {"", "k", "-1", "8q", "8kk", "1e3", "2000m", "99999999999999999999"}) {
    EXPECT_THROW((void)parse_bytes(wrong), std::invalid_argument) << wrong;
  }
}

}  // namespace
}  // namespace apbench
