// SPDX-License-Identifier: MIT
// The status network: the OR of every cell's word, without a barrier.
#include <gtest/gtest.h>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

TEST(Status, IsTheOrOfAllWords) {
  for (const std::uint32_t threads : {1U, 2U, 4U}) {
    run_well({{2, 2}, threads}, [] {
      EXPECT_EQ(status::combined(), 0);
      barrier();
      status::post(static_cast<std::int32_t>(1U << me()));
      barrier();
      EXPECT_EQ(status::combined(), 0xf);
      barrier();
      if (me() == 2) status::post(0);
      barrier();
      EXPECT_EQ(status::combined(), 0xb);
    });
  }
}

TEST(Status, CanBeWaitedForByPolling) {
  for (const std::uint32_t threads : {1U, 2U}) {
    run_well({{4, 1}, threads}, [] {
      if (me() == 3) {
        this_task::yield();
        status::post(8);
      }
      while ((status::combined() & 8) == 0) this_task::yield();
    });
  }
}

TEST(Status, StartsAtZeroInEveryRun) {
  Machine machine(options_of({{2, 1}, 2}));
  for (int i = 0; i < 2; ++i) {
    const Report report = machine.run([] {
      EXPECT_EQ(status::combined(), 0);
      barrier();
      status::post(3);
    });
    EXPECT_EQ(report.exit_status, 0) << report.reason;
  }
}

}  // namespace
}  // namespace aplib
