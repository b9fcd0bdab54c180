// SPDX-License-Identifier: MIT
// The fixed tree, compared with its definition, and cut into pieces in every way that processors could cut it.
#include "cell/fold.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace aplib {
namespace {

// The definition in fold.hpp: a node of level k at a covers [a, a + 2^k); its right child may be empty.
double node(const std::vector<double>& values, std::size_t first, std::size_t width) {
  if (width == 1) return values[first];
  const double left = node(values, first, width / 2);
  if (first + width / 2 >= values.size()) return left;
  return left + node(values, first + width / 2, width / 2);
}

double tree_sum(const std::vector<double>& values) { return node(values, 0, std::bit_ceil(values.size())); }

std::vector<double> awkward_values(std::size_t count, std::mt19937_64& random) {
  std::vector<double> values(count);
  for (double& value : values) {
    value = std::ldexp(static_cast<double>(random() % 2001) - 1000.0, static_cast<int>(random() % 80) - 40);
  }
  return values;
}

TEST(Fold, FollowsTheFixedTree) {
  std::mt19937_64 random(1);
  for (std::size_t count = 1; count <= 200; ++count) {
    const std::vector<double> values = awkward_values(count, random);
    Fold fold(Combine{ReduceOp::sum, NumberType::float64, false});
    for (std::size_t i = 0; i < count; ++i) fold.push(static_cast<std::uint32_t>(i), 0, Operand::of(values[i]));
    ASSERT_EQ(fold.finish().bits, Operand::of(tree_sum(values)).bits) << count << " cells";
  }
}

TEST(Fold, PiecesOfAnyPartitionGiveTheSameBits) {
  std::mt19937_64 random(2);
  const Combine sum{ReduceOp::sum, NumberType::float64, false};
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = 1 + random() % 130;
    const std::vector<double> values = awkward_values(count, random);
    Fold whole(sum);
    for (std::size_t start = 0; start < count;) {
      const std::size_t end = std::min(count, start + 1 + random() % 40);
      Fold part(sum);
      for (std::size_t i = start; i < end; ++i) part.push(static_cast<std::uint32_t>(i), 0, Operand::of(values[i]));
      for (std::uint32_t i = 0; i < part.count(); ++i)
        whole.push(part.part(i).first, part.part(i).level, part.part(i).value);
      start = end;
    }
    ASSERT_EQ(whole.finish().bits, Operand::of(tree_sum(values)).bits) << count << " cells, round " << round;
  }
}

TEST(Fold, TheSmallestLocationWinsATie) {
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    Fold fold(Combine{op, NumberType::int32, true});
    const int locations[] = {7, 3, 9, 3, 5};
    for (std::uint32_t i = 0; i < 5; ++i) fold.push(i, 0, Operand::of(std::int32_t{4}, locations[i]));
    EXPECT_EQ(fold.finish().as<std::int32_t>(), 4);
    EXPECT_EQ(fold.finish().location, 3);
  }
}

TEST(Fold, IntegerSumsWrapAround) {
  Fold fold(Combine{ReduceOp::sum, NumberType::int32, false});
  fold.push(0, 0, Operand::of(std::int32_t{0x7fff'ffff}));
  fold.push(1, 0, Operand::of(std::int32_t{1}));
  EXPECT_EQ(fold.finish().as<std::int32_t>(), std::int32_t{-0x7fff'ffff - 1});
}

}  // namespace
}  // namespace aplib
