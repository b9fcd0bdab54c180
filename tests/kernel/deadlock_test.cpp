// SPDX-License-Identifier: MIT
// When every task waits for something that cannot come, the machine reports who waits for what, and ends.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

class Deadlock : public testing::TestWithParam<Shape> {
 protected:
  static std::string report_of(std::function<void()> program) {
    const Report report = run(GetParam(), std::move(program));
    EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
    EXPECT_EQ(report.reason.find("deadlock: "), 0U) << report.reason;
    return report.reason;
  }
};

INSTANTIATE_TEST_SUITE_P(, Deadlock,
                         testing::Values(Shape{{4, 1}, 1}, Shape{{4, 1}, 2}, Shape{{4, 1}, 3},
                                         Shape{{4, 1}, Options::threads_per_cell}),
                         shape_name);

// A whole line of the report: name, wait, and since when.
void expect_line(const std::string& report, const std::string& wait) {
  const std::string start = "\n  " + wait + ", for ";
  const std::size_t at = report.find(start);
  ASSERT_NE(at, std::string::npos) << wait << "\nin\n" << report;
  const std::size_t seconds = at + start.size();
  const std::size_t end = report.find_first_not_of("0123456789.", seconds);
  ASSERT_NE(end, std::string::npos);
  EXPECT_GT(end, seconds) << report;
  EXPECT_EQ(report.substr(end, 2), " s") << report;
}

TEST_P(Deadlock, NamesSourceTaskTypeAndCallOfEveryReceive) {
  const std::string report = report_of([] {
    std::vector<std::byte> buffer(10'000);
    switch (me()) {
      case 0:
        static_cast<void>(receive());
        break;
      case 1:
        static_cast<void>(receive({.cell = cell(2), .task = TaskId{3}, .type = 7}));
        break;
      case 2:
        receive_into(buffer, {.cell = cell(0)});
        break;
      default:
        static_cast<void>(receive({.type = 12}));
        break;
    }
  });
  expect_line(report, "cell 0 task 0: waits in receive for a message from any cell, any task, any type");
  expect_line(report, "cell 1 task 0: waits in receive for a message from cell 2, task 3, type 7");
  expect_line(report, "cell 2 task 0: waits in receive_into for a message from cell 0, any task, any type");
  expect_line(report, "cell 3 task 0: waits in receive for a message from any cell, any task, type 12");
}

TEST_P(Deadlock, NamesJoinsAndAllTasksOfACell) {
  const std::string report = report_of([] {
    if (me() != 2) return;
    Task child = spawn([] { static_cast<void>(receive({.cell = cell(2), .type = 1})); }, TaskId{8});
    child.join();
  });
  expect_line(report, "cell 2 task 0: waits in join for the end of task 8");
  expect_line(report, "cell 2 task 8: waits in receive for a message from cell 2, any task, type 1");
  EXPECT_NE(report.find("ended already: cell 0, cell 1, cell 3"), std::string::npos) << report;
}

TEST_P(Deadlock, NamesWhoIsMissingInACollective) {
  const std::string report = report_of([] {
    if (me() == 1) {
      static_cast<void>(receive({.type = 4}));
    } else {
      static_cast<void>(reduce_sum(1.0));
    }
  });
  expect_line(report, "cell 0 task 0: waits in reduce (all cells; missing: cell 1)");
  expect_line(report, "cell 1 task 0: waits in receive for a message from any cell, any task, type 4");
}

TEST_P(Deadlock, MentionsMessagesThatNobodyAskedFor) {
  const std::string report = report_of([] {
    send(cell(me() ^ 1U), 1.0, {.type = 5});
    static_cast<void>(receive({.type = 6}));
  });
  EXPECT_NE(report.find("cell 0 task 0: waits in receive for a message from any cell, any task, type 6"),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("1 other message unread, the oldest from cell 1, task 0, type 5, 8 bytes"), std::string::npos)
      << report;
}

TEST(DeadlockReport, NamesEachKindOfMessageThatNobodyAskedFor) {
  const Report report = run({{3, 1}, 1}, [] {
    if (me() == 0) {
      for (int i = 0; i < 3; ++i) send(cell(1), 1.0, {.type = 5});
      for (int i = 0; i < 2; ++i) send(cell(1), 1, {.type = 7});
      send(cell(1), 1, {.type = 8});
      send(cell(2), 1, {.task = TaskId{6}, .type = 9});
    }
    static_cast<void>(receive({.type = 6}));
  });
  EXPECT_NE(
      report.reason.find("; 6 other messages unread, the oldest from cell 0, task 0, type 5, 8 bytes; also 2 from "
                         "cell 0, task 0, type 7, 4 bytes; also from cell 0, task 0, type 8, 4 bytes\n"),
      std::string::npos)
      << report.reason;
  EXPECT_NE(report.reason.find(
                "\n  cell 2: 1 message for task 6, which does not exist, from cell 0, task 0, type 9, 4 bytes\n"),
            std::string::npos)
      << report.reason;
}

TEST_P(Deadlock, StacksUnwindAndTheMachineCanRunAgain) {
  Machine machine(options_of(GetParam()));
  for (int i = 0; i < 10; ++i) {
    std::atomic<int> unwound{0};
    const Report report = machine.run([&] {
      struct Watch {
        std::atomic<int>& count;
        ~Watch() { count.fetch_add(1); }
      } watch{unwound};
      static_cast<void>(receive());
    });
    ASSERT_EQ(report.exit_status, 70);
    ASSERT_EQ(unwound.load(), 4);
  }
}

// No false alarm: a long chain in which only one task at a time can go on, and whole processors sleep in between.
TEST_P(Deadlock, IsNotSeenWhereOneTaskCanStillGoOn) {
  Options options = options_of(GetParam());
  options.poll_time = std::chrono::nanoseconds(0);
  Machine machine(options);
  const Report report = machine.run([] {
    const std::uint32_t cells = this_machine::cell_count();
    for (int round = 0; round < 2000; ++round) {
      if (me() == 0) send(cell(1), round);
      EXPECT_EQ(receive().as<int>(), round);
      if (me() != 0) send(cell((me() + 1) % cells), round);
    }
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST_P(Deadlock, IsNotSeenWhileATaskSleeps) {
  Options options = options_of(GetParam());
  options.poll_time = std::chrono::nanoseconds(0);
  Machine machine(options);
  const Report report = machine.run([] {
    if (me() == 0) {
      this_task::sleep_for(std::chrono::milliseconds(5));
      for (std::uint32_t c = 1; c < 4; ++c) send(cell(c), 1);
    } else {
      static_cast<void>(receive());
    }
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST(DeadlockReport, IsCutWhereThousandsWait) {
  const Report report = run({{2, 1}, 2}, [] {
    for (int i = 0; i < 500; ++i) spawn([] { static_cast<void>(receive()); }).detach();
  });
  EXPECT_EQ(report.exit_status, 70);
  EXPECT_NE(report.reason.find("more tasks"), std::string::npos) << report.reason.substr(0, 300);
  EXPECT_LT(report.reason.size(), 100'000U);
}

}  // namespace
}  // namespace aplib
