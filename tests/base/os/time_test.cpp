// SPDX-License-Identifier: MIT
#include "base/os/time.hpp"

#include <gtest/gtest.h>

namespace aplib::os {
namespace {

using namespace std::chrono_literals;

TEST(TimespecOf, IsWholeSecondsAndTheRest) {
  const auto expect = [](std::chrono::nanoseconds time, long seconds, long nanoseconds) {
    const timespec made = timespec_of(time);
    EXPECT_EQ(made.tv_sec, seconds);
    EXPECT_EQ(made.tv_nsec, nanoseconds);
  };
  expect(0ns, 0, 0);
  expect(1ns, 0, 1);
  expect(1s, 1, 0);
  expect(2s + 3ns, 2, 3);
  expect(std::chrono::nanoseconds::max(), 9'223'372'036, 854'775'807);
}

// Linux refuses them.
TEST(TimespecOf, ANegativeTimeIsNone) {
  EXPECT_EQ(timespec_of(-1ns).tv_nsec, 0);
  EXPECT_EQ(timespec_of(std::chrono::nanoseconds::min()).tv_sec, 0);
}

}  // namespace
}  // namespace aplib::os
