// SPDX-License-Identifier: MIT
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "aplib/error.hpp"

namespace aplib {
namespace {

void say_everything(const Log& log) {
  log.trace("{}", 1);
  log.debug("{}", 2);
  log.info("{}", 3);
  log.warn("{}", 4);
  log.error("cell {}: {}", 5, "text");
}

std::string written_at(std::string_view level) {
  testing::internal::CaptureStderr();
  say_everything(Log(level));
  return testing::internal::GetCapturedStderr();
}

TEST(Log, WritesItsLevelAndAbove) {
  EXPECT_EQ(written_at("trace"), "aplib: trace: 1\naplib: debug: 2\naplib: info: 3\naplib: 4\naplib: cell 5: text\n");
  EXPECT_EQ(written_at("info"), "aplib: info: 3\naplib: 4\naplib: cell 5: text\n");
  EXPECT_EQ(written_at("WARN"), "aplib: 4\naplib: cell 5: text\n");
  EXPECT_EQ(written_at("error"), "aplib: cell 5: text\n");
  EXPECT_EQ(written_at("off"), "");
}

TEST(Log, AnUnknownLevelIsRefusedInWords) {
  try {
    Log log("loud");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "option log-level: \"loud\" is not a level: use one of trace, debug, info, warn, error, off");
  }
}

TEST(Log, TwoLogsOfOneProcessDoNotShareTheirLevel) {
  const Log quiet(LogLevel::error);
  const Log talkative(LogLevel::debug);
  testing::internal::CaptureStderr();
  quiet.warn("quiet");
  talkative.debug("talkative");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "aplib: debug: talkative\n");
}

TEST(Log, ReadyTextIsNotTakenForAFormat) {
  testing::internal::CaptureStderr();
  Log().write(LogLevel::warn, "{} %v {1}\nsecond line");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "aplib: {} %v {1}\nsecond line\n");
}

TEST(Log, LinesOfThreadsDoNotMix) {
  const Log log;
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) log.warn("{}", std::string(60, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line, "aplib: " + std::string(60, 'x'));
  EXPECT_EQ(count, 800);
}

}  // namespace
}  // namespace aplib
