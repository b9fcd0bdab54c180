// SPDX-License-Identifier: MIT
#include "cell/wait_length.hpp"

#include <gtest/gtest.h>

#include <random>

namespace aplib {
namespace {

using namespace std::chrono_literals;
using Duration = WaitLength::Duration;

TEST(WaitLength, BeginsWithNothing) { EXPECT_EQ(WaitLength().poll_time(), 0us); }

TEST(WaitLength, UnevenWaitsArePolledThrough) {
  WaitLength length;
  std::mt19937_64 random(1);
  std::uniform_int_distribution<Duration::rep> wait(0, 2'000'000);
  int slept = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Duration next(wait(random));
    slept += next > length.poll_time() ? 1 : 0;
    length.waited(next);
  }
  EXPECT_LT(slept, 100);
}

TEST(WaitLength, NobodyPollsForLongerThanTheMost) {
  WaitLength length;
  length.waited(WaitLength::most);
  EXPECT_EQ(length.poll_time(), WaitLength::most);
}

TEST(WaitLength, SomeLongWaitsEndIt) {
  WaitLength length;
  length.waited(3ms);
  for (int i = 0; i < 4; ++i) length.waited(1s);
  EXPECT_LT(length.poll_time(), 20us);
}

TEST(WaitLength, ALongWaitNowAndThenDoesNot) {
  WaitLength length;
  for (int i = 0; i < 100; ++i) {
    length.waited(i % 10 == 0 ? 20ms : 300us);
  }
  EXPECT_GE(length.poll_time(), 300us);
}

}  // namespace
}  // namespace aplib
