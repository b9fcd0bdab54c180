// SPDX-License-Identifier: MIT
// What farms tell of themselves, from another process.
#include "base/farm_tally.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace aplib {
namespace {

namespace fs = std::filesystem;

class FarmTallyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = ::testing::TempDir() + "tallyXXXXXX";
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    root_ = made;
    if (const char* before = std::getenv("XDG_RUNTIME_DIR")) before_ = before;
    ::setenv("XDG_RUNTIME_DIR", made.c_str(), 1);
  }
  void TearDown() override {
    if (child_ > 0) end_child();
    before_.empty() ? ::unsetenv("XDG_RUNTIME_DIR") : ::setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
    fs::remove_all(root_);
  }

  /// `what` happens in a process of its own, which then waits to be killed.
  void start(const std::function<void(FarmTally&)>& what) {
    child_ = ::fork();
    ASSERT_GE(child_, 0);
    if (child_ != 0) return;
    ::alarm(60);
    FarmTally tally("test", "what it runs");
    what(tally);
    for (;;) ::pause();
  }
  void end_child() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  [[nodiscard]] std::string folder() const { return root_ + "/aplib"; }
  /// The only one there is.
  [[nodiscard]] FarmWatch find() const {
    for (;;) {
      const std::vector<std::string> names = FarmWatch::find(folder());
      if (names.empty()) continue;
      FarmWatch watch(folder(), names.front());
      if (watch.read()) return watch;
    }
  }
  template <class What>
  static FarmReport wait_for(const FarmWatch& watch, What&& what) {
    for (;;) {
      const auto report = watch.read();
      if (report && what(*report)) return *report;
    }
  }

  std::string root_;
  std::string before_;
  pid_t child_ = -1;
};

TEST_F(FarmTallyTest, NumbersFailuresAndTheEndAreSeen) {
  start([](FarmTally& tally) {
    for (int i = 0; i < 15; ++i) tally.note_failure("failure " + std::to_string(i));
    tally.note_failure(std::string(5000, 'x'));
    tally.set({.workers = 1, .queued = 2, .running = 3, .done = 4, .failed = 16, .total = 25});
  });
  const FarmWatch watch = find();
  const FarmReport report = wait_for(watch, [](const FarmReport& is) { return is.counts.total == 25; });
  EXPECT_EQ(report.kind, "test");
  EXPECT_EQ(report.title, "what it runs");
  EXPECT_TRUE(report.lives);
  EXPECT_EQ(report.process, child_);
  EXPECT_FALSE(report.ended);
  EXPECT_EQ(report.counts.workers, 1U);
  EXPECT_EQ(report.counts.queued, 2U);
  EXPECT_EQ(report.counts.running, 3U);
  EXPECT_EQ(report.counts.done, 4U);
  EXPECT_EQ(report.counts.failed, 16U);
  ASSERT_EQ(report.failures.size(), FarmTally::failures_kept);
  EXPECT_EQ(report.failures.front().text, "failure 4");
  EXPECT_EQ(report.failures.back().text, std::string(503, 'x'));
  end_child();
  const auto after = watch.read();
  ASSERT_TRUE(after);
  EXPECT_FALSE(after->lives);
  EXPECT_FALSE(after->ended);
  EXPECT_EQ(FarmWatch::find(folder()).size(), 1U) << "it stays for a minute";
  fs::last_write_time(folder() + "/" + FarmWatch::find(folder()).front(),
                      fs::file_time_type::clock::now() - std::chrono::seconds(61));
  EXPECT_TRUE(FarmWatch::find(folder()).empty());
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(FarmTallyTest, WhoHasItOpenSeesHowItEnds) {
  std::optional<FarmTally> tally(std::in_place, "test", "x");
  const FarmWatch watch = find();
  tally->end(3, "why");
  tally.reset();
  EXPECT_TRUE(fs::is_empty(folder()));
  const auto report = watch.read();
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->ended);
  EXPECT_EQ(report->status, 3);
  EXPECT_EQ(report->reason, "why");
}

TEST_F(FarmTallyTest, TextsAreWhole) {
  start([](FarmTally& tally) {
    for (std::size_t i = 0;; ++i) tally.note_failure(std::string(100 + i % 300, static_cast<char>('a' + i % 26)));
  });
  const FarmWatch watch = find();
  std::size_t seen = 0;
  for (int i = 0; i < 2000 || seen < 100; ++i) {
    const auto report = watch.read();  // nothing: it was busy
    if (!report || report->failures.empty()) {
      std::this_thread::yield();
      continue;
    }
    for (const FarmReport::Failure& failure : report->failures) {
      ++seen;
      ASSERT_EQ(failure.text, std::string(failure.text.size(), failure.text.front()));
      ASSERT_EQ((failure.text.size() - 100) % 2, static_cast<std::size_t>(failure.text.front() - 'a') % 2);
    }
  }
}

TEST_F(FarmTallyTest, NoFolderIsNoFailure) {
  ::setenv("XDG_RUNTIME_DIR", "/proc/nowhere", 1);
  FarmTally tally("test", "x");
  tally.set({.workers = 1});
  tally.note_failure("x");
  tally.end(0, "");
}

TEST_F(FarmTallyTest, NoRoomIsNoFailure) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  FarmTally tally("test", "x");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  tally.set({.workers = 1});
  EXPECT_TRUE(FarmWatch::find(folder()).empty());
}

}  // namespace
}  // namespace aplib
