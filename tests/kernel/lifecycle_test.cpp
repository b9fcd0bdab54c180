// SPDX-License-Identifier: MIT
// Machines are made, run, run again, and several exist in one process.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernel/programs.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

TEST(Machine, RunsTheProgramOnceOnEveryCell) {
  for (const Shape& shape :
       {Shape{{1, 1}, 1}, Shape{{3, 2}, 2}, Shape{{8, 8}, 3}, Shape{{5, 1}, Options::threads_per_cell}}) {
    std::vector<std::atomic<int>> ran(shape.cells.count());
    run_well(shape, [&] {
      EXPECT_EQ(this_machine::grid(), shape.cells);
      EXPECT_EQ(this_machine::cell_count(), shape.cells.count());
      EXPECT_EQ(this_cell::x(), me() % shape.cells.nx);
      EXPECT_EQ(this_cell::y(), me() / shape.cells.nx);
      EXPECT_LT(this_cell::processor(), this_machine::processor_count());
      EXPECT_GE(this_cell::waiting_seconds(), 0.0);
      EXPECT_EQ(this_machine::host_cell(), cell(4096));
      ran[me()].fetch_add(1);
    });
    for (const auto& count : ran) EXPECT_EQ(count.load(), 1) << shape.name();
  }
}

TEST(Machine, ReportsCellsAndTime) {
  const Report report = run({{3, 1}, 2}, [] {
    if (me() == 2) this_task::sleep_for(std::chrono::milliseconds(2));
  });
  EXPECT_EQ(report.exit_status, 0);
  EXPECT_EQ(report.reason, "");
  EXPECT_EQ(report.cell_status, (std::vector<int>{0, 0, 0}));
  EXPECT_GE(report.seconds, 0.002);
  EXPECT_EQ(report.cell_waiting_seconds.size(), 3U);
}

TEST(Machine, TellsHowItsThreadsWait) {
  Options options = options_of({{2, 1}, 2});
  options.poll_time = std::chrono::microseconds(7);  // less than beside others that compute
  Machine machine(options);
  EXPECT_EQ(describe_waits(machine), "");
  std::string text;
  const Report report = machine.run([&] {
    this_task::sleep_for(std::chrono::milliseconds(2));
    barrier();
    if (me() == 0) text = describe_waits(machine);
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_EQ(text.find("7 us"), 0U) << text;
}

TEST(Machine, RunsAgainAndAgain) {
  Machine machine(options_of({{4, 1}, 2}));
  for (int i = 0; i < 50; ++i) {
    int sum = 0;
    const Report report = machine.run([&] {
      const int total = reduce_sum(std::int32_t{1});
      if (me() == 0) sum = total;
      send(cell((me() + 1) % 4), i);
      EXPECT_EQ(receive().as<int>(), i);
    });
    ASSERT_EQ(report.exit_status, 0) << report.reason;
    ASSERT_EQ(sum, 4);
  }
}

TEST(Machine, RunsAgainAfterAFailure) {
  Machine machine(options_of({{2, 1}, 2}));
  for (int i = 0; i < 5; ++i) {
    const Report bad = machine.run([] {
      if (me() == 1) throw std::runtime_error("no luck");
      static_cast<void>(receive());
    });
    EXPECT_EQ(bad.exit_status, 1);
    const Report good = machine.run([] { barrier(); });
    EXPECT_EQ(good.exit_status, 0) << good.reason;
    EXPECT_EQ(good.reason, "");
  }
}

TEST(Machine, MessagesNobodyReadAreGoneInTheNextRun) {
  Machine machine(options_of({{2, 1}, 2}));
  for (int i = 0; i < 3; ++i) {
    const Report report = machine.run([] {
      EXPECT_FALSE(probe());
      barrier();
      for (const std::size_t bytes : {std::size_t{8}, std::size_t{5000}, std::size_t{200'000}}) {
        send(cell(1 - me()), std::vector<std::byte>(bytes));
        send(cell(1 - me()), std::vector<std::byte>(bytes), {.task = TaskId{9}});
      }
    });
    EXPECT_EQ(report.exit_status, 0) << report.reason;
  }
}

TEST(Machine, TwoLiveInOneProcess) {
  Machine first(options_of({{2, 2}, 2}));
  Machine second(options_of({{3, 1}, 2}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(first
                  .run([] {
                    EXPECT_EQ(this_machine::cell_count(), 4U);
                    barrier();
                  })
                  .exit_status,
              0);
    EXPECT_EQ(second
                  .run([] {
                    EXPECT_EQ(this_machine::cell_count(), 3U);
                    barrier();
                  })
                  .exit_status,
              0);
  }
}

TEST(Machine, TwoRunAtTheSameTime) {
  const auto work = [](Grid cells) {
    Machine machine(options_of({cells, 2}));
    for (int i = 0; i < 10; ++i) {
      const Report report = machine.run([&] {
        const std::uint32_t count = this_machine::cell_count();
        EXPECT_EQ(count, cells.count());
        for (int round = 0; round < 50; ++round) {
          send(cell((me() + 1) % count), round);
          EXPECT_EQ(receive().as<int>(), round);
          EXPECT_EQ(reduce_sum(std::int32_t{1}), static_cast<std::int32_t>(count));
        }
      });
      EXPECT_EQ(report.exit_status, 0) << report.reason;
    }
  };
  std::thread other([&] { work({3, 2}); });
  work({4, 1});
  other.join();
}

TEST(Machine, OneFailsWhileTheOtherGoesOn) {
  std::atomic<bool> other_failed{false};
  std::thread other([&] {
    const Report report = run({{2, 1}, 2}, [] { static_cast<void>(receive({.type = 1})); });
    EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock)) << report.reason;
    other_failed = true;
  });
  run_well({{2, 1}, 2}, [&] {
    while (!other_failed) this_task::sleep_for(std::chrono::microseconds(200));
    barrier();
  });
  other.join();
}

TEST(Machine, TheHostIdMovesWhereCellsTakeItsNumber) {
  Options options = options_of({{4097, 1}, 2});
  options.stack_bytes = 16 * 1024;
  Machine machine(options);
  const Report report = machine.run([] { EXPECT_EQ(this_machine::host_cell(), cell(4097)); });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST(Machine, AnImpossibleGridIsRefusedBeforeAnythingStarts) {
  for (const Grid grid : {Grid{0, 1}, Grid{1, 0}, Grid{cell_count_max, 2}, Grid{65'536, 65'536}}) {
    const std::string text = error_text([&] { Machine machine(options_of({grid, 1})); });
    EXPECT_NE(text.find("cells"), std::string::npos) << text;
    EXPECT_NE(text.find("16384"), std::string::npos) << text;
  }
}

TEST(Machine, MoreThreadsThanCellsIsNoError) {
  run_well({{2, 1}, 16}, [] { EXPECT_LE(this_machine::processor_count(), 2U); });
}

TEST(Machine, CellsThatYieldAndMeetAllEnd) {
  // Four cells begin on each of two threads.
  std::atomic<int> turns = 0;
  run_well({{8, 1}, 2}, [&] {
    for (int i = 0; i < 200; ++i) {
      this_task::yield();
      ++turns;
      if (i % 50 != 0) continue;
      barrier();
      EXPECT_GE(turns.load(), 8 * (i + 1)) << "a cell left the barrier before another came";
    }
  });
  EXPECT_EQ(turns.load(), 8 * 200);
}

TEST(Machine, ExitStatusIsTheFirstFailedCells) {
  const Report report = run({{4, 1}, 1}, [] {
    if (me() == 2) this_task::exit(42);
  });
  EXPECT_EQ(report.exit_status, 42);
  EXPECT_EQ(report.cell_status, (std::vector<int>{0, 0, 42, 0}));
}

TEST(Machine, WaitingTimeIsCountedForThoseWhoWait) {
  const Report report = run({{2, 1}, 2}, [] {
    if (me() == 0) {
      while (receive().as<bool>()) {
        this_task::sleep_for(std::chrono::milliseconds(20));
        send(cell(1), 1);
      }
    } else {
      while (this_cell::waiting_seconds() < 0.001) {  // not the first time, if its thread has to wait for a core
        send(cell(0), true);
        static_cast<void>(receive());
      }
      send(cell(0), false);
    }
  });
  EXPECT_GE(report.cell_waiting_seconds.at(1), 0.001);
}

}  // namespace
}  // namespace aplib
