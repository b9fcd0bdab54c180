// SPDX-License-Identifier: MIT
// A task that keeps its processor for seconds is told of.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "checks.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

/// Calls nothing of the library.
bool something_was_said() {
  struct stat now {};
  return fstat(STDERR_FILENO, &now) == 0 && now.st_size != 0;
}

// Cell 0 spins until it is told of, for without that nothing ends it.
TEST(Spin, IsToldOnceWhereOthersWaitForTheProcessor) {
  std::atomic<bool> told = false;
  testing::internal::CaptureStderr();
  const Report report = run({{3, 1}, 1}, [&told] {
    while (me() != 0 && !told) this_task::yield();
    while (!something_was_said()) {
    }
    told = true;
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(report.exit_status, 0);
  EXPECT_TRUE(contains(said, "cell 0 task 0: has computed for ")) << said;
  EXPECT_TRUE(contains(said, "and 2 other tasks wait for its processor; if it waits for a flag or a time")) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

}  // namespace
}  // namespace aplib
