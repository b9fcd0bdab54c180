// SPDX-License-Identifier: MIT
#include "cell/core_sharing.hpp"

#include <gtest/gtest.h>

namespace aplib {
namespace {

using namespace std::chrono_literals;

constexpr Clock::time_point begin{1h};

TEST(CoreSharing, AShortWaitOffersNothing) {
  const CoreSharing sharing;
  EXPECT_FALSE(sharing.is_shared());
  EXPECT_FALSE(sharing.is_due(begin, begin + 9us));
  EXPECT_TRUE(sharing.is_due(begin, begin + 10us));
}

TEST(CoreSharing, WhoeverIsAloneOffersTheCoreNowAndThen) {
  CoreSharing sharing;
  EXPECT_EQ(sharing.offered(begin, begin + 1us), 0us);
  EXPECT_FALSE(sharing.is_shared());
  EXPECT_FALSE(sharing.is_due(begin - 1s, begin + 2us));
  EXPECT_TRUE(sharing.is_due(begin - 1s, begin + 12us));
}

TEST(CoreSharing, ACoreThatWasTakenIsOfferedAfterEachLook) {
  CoreSharing sharing;
  EXPECT_EQ(sharing.offered(begin, begin + 40us), 40us);
  EXPECT_TRUE(sharing.is_shared());
  EXPECT_TRUE(sharing.is_due(begin + 41us, begin + 41us));
}

TEST(CoreSharing, ACoreOnWhichOthersComputeIsNotOfferedForSomeTime) {
  CoreSharing sharing;
  EXPECT_EQ(sharing.offered(begin, begin + 4ms), 4ms);
  EXPECT_FALSE(sharing.is_shared());
  EXPECT_TRUE(sharing.is_computed_on(begin + 11ms));
  EXPECT_TRUE(sharing.is_wanted(begin + 11ms));
  EXPECT_FALSE(sharing.is_computed_on(begin + 13ms));
}

TEST(CoreSharing, ACoreOfSeveralThreadsOfTheMachineIsOfferedAllTheSame) {
  CoreSharing sharing(false);
  EXPECT_EQ(sharing.offered(begin, begin + 4ms), 4ms);
  EXPECT_TRUE(sharing.is_shared());
  EXPECT_FALSE(sharing.is_computed_on(begin + 4ms));
}

TEST(CoreSharing, TheLongerOthersComputeTheRarerIsAnOffer) {
  CoreSharing sharing;
  Clock::time_point now = begin;
  int offers = 0;
  for (; now < begin + 10s; now += 100us) {
    if (sharing.is_computed_on(now)) continue;
    static_cast<void>(sharing.offered(now, now + 4ms));
    ++offers;
  }
  EXPECT_LT(offers, 50);
  static_cast<void>(sharing.offered(now, now + 10us));
  static_cast<void>(sharing.offered(now, now + 4ms));
  EXPECT_FALSE(sharing.is_computed_on(now + 13ms)) << "it was forgotten";
}

TEST(CoreSharing, ACoreThatNobodyTakesIsOnesOwnAgain) {
  CoreSharing sharing;
  static_cast<void>(sharing.offered(begin, begin + 40us));
  static_cast<void>(sharing.offered(begin + 900us, begin + 901us));
  EXPECT_TRUE(sharing.is_shared()) << "not yet";
  static_cast<void>(sharing.offered(begin + 1100us, begin + 1101us));
  EXPECT_FALSE(sharing.is_shared());
}

}  // namespace
}  // namespace aplib
