// SPDX-License-Identifier: MIT
// Machines with a host program.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

Report run_host(const Shape& shape, std::function<int()> program) {
  Machine machine(options_of(shape));
  return machine.run_host(std::move(program));
}

class Host : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, Host,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{4, 1}, 1}, Shape{{3, 2}, 2},
                                         Shape{{4, 1}, Options::threads_per_cell}),
                         shape_name);

TEST_P(Host, StartsCellsTalksToThemAndWaits) {
  std::atomic<int> ran{0};
  const Report report = run_host(GetParam(), [&] {
    const std::uint32_t cells = this_machine::cell_count();
    EXPECT_EQ(this_cell::id(), this_machine::host_cell());
    this_machine::start_cells([&] {
      ran.fetch_add(1);
      const Message message = receive({.cell = this_machine::host_cell()});
      send(this_machine::host_cell(), message.as<int>() * 2, {.type = 3});
      barrier();
    });
    for (std::uint32_t c = 0; c < cells; ++c) send(cell(c), static_cast<int>(c));
    int sum = 0;
    for (std::uint32_t c = 0; c < cells; ++c) sum += receive({.cell = cell(c), .type = 3}).as<int>();
    EXPECT_EQ(sum, static_cast<int>(cells * (cells - 1)));
    this_machine::wait_cells();
    EXPECT_EQ(ran.load(), static_cast<int>(cells));
    return 0;
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST_P(Host, StartsSeveralProgramsOneAfterTheOther) {
  std::atomic<int> ran{0};
  const Report report = run_host(GetParam(), [&] {
    for (int round = 0; round < 5; ++round) {
      this_machine::start_cells([&] {
        barrier();
        ran.fetch_add(1);
      });
      this_machine::wait_cells();
      EXPECT_EQ(ran.load(), (round + 1) * static_cast<int>(this_machine::cell_count()));
    }
    return 0;
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST_P(Host, StartsSeveralTasksPerCell) {
  std::atomic<int> sum{0};
  const Report report = run_host(GetParam(), [&] {
    for (std::uint32_t t = 0; t < 3; ++t) {
      this_machine::start_cells(
          [&, t] {
            EXPECT_EQ(this_task::id(), TaskId{t});
            sum.fetch_add(1 + static_cast<int>(t));
            static_cast<void>(receive({.cell = this_machine::host_cell()}));
          },
          TaskId{t});
    }
    for (std::uint32_t c = 0; c < this_machine::cell_count(); ++c) {
      for (std::uint32_t t = 0; t < 3; ++t) send(cell(c), 0, {.task = TaskId{t}});
    }
    this_machine::wait_cells();
    return 0;
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_EQ(sum.load(), 6 * static_cast<int>(GetParam().cells.count()));
}

TEST(HostProgram, ItsValueIsTheExitStatus) {
  EXPECT_EQ(run_host({{2, 1}, 1}, [] { return 7; }).exit_status, 7);
  EXPECT_EQ(run_host({{2, 1}, 1},
                     [] {
                       this_machine::start_cells([] {});
                       return 0;
                     })
                .exit_status,
            0);
}

TEST(HostProgram, AFailedCellOutweighsIt) {
  const Report report = run_host({{2, 1}, 2}, [] {
    this_machine::start_cells([] {
      if (me() == 1) this_task::exit(5);
    });
    this_machine::wait_cells();
    return 0;
  });
  EXPECT_EQ(report.exit_status, 5);
}

TEST(HostProgram, ChoosesTheGridBeforeItStartsCells) {
  const Report report = run_host({{1, 1}, 2}, [] {
    this_machine::configure({3, 2});
    EXPECT_EQ(this_machine::cell_count(), 6U);
    EXPECT_NE(error_text([] { this_machine::configure({0, 2}); }).find("cells"), std::string::npos);
    this_machine::start_cells([] {
      EXPECT_EQ(this_machine::grid(), (Grid{3, 2}));
      EXPECT_EQ(reduce_sum(std::int32_t{1}), 6);
    });
    const std::string late = error_text([] { this_machine::configure({2, 2}); });
    EXPECT_NE(late.find("host program"), std::string::npos) << late;
    this_machine::wait_cells();
    return 0;
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_EQ(report.cell_status.size(), 6U);
}

TEST(HostProgram, TakesNoPartInCollectives) {
  const Report report = run_host({{2, 1}, 1}, [] {
    const std::string text = error_text([] { barrier(); });
    EXPECT_NE(text.find("barrier: the host program takes no part in collectives"), std::string::npos) << text;
    return 0;
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST(HostProgram, OnlyItConfiguresAndStarts) {
  run_well({{2, 1}, 1}, [] {
    for (const std::string& text :
         {error_text([] {
            this_machine::configure({2, 2});
          }),
          error_text([] { this_machine::start_cells([] {}); }), error_text([] { this_machine::wait_cells(); })}) {
      EXPECT_NE(text.find("host program"), std::string::npos) << text;
    }
  });
}

TEST(HostProgram, ATakenTaskIdIsRefused) {
  const Report report = run_host({{2, 1}, 1}, [] {
    this_machine::start_cells([] { static_cast<void>(receive()); });
    this_machine::start_cells([] {});
    for (std::uint32_t c = 0; c < 2; ++c) send(cell(c), 0);
    this_machine::wait_cells();
    return 0;
  });
  EXPECT_NE(report.exit_status, 0);
  EXPECT_NE(report.reason.find("task 0"), std::string::npos) << report.reason;
}

TEST(HostProgram, AnExceptionInItIsReported) {
  const Report report = run_host({{2, 1}, 2}, []() -> int {
    this_machine::start_cells([] { static_cast<void>(receive()); });
    throw std::runtime_error("host trouble");
  });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_EQ(report.reason, "host program task 0: uncaught exception: host trouble");
}

TEST(HostProgram, WhereHostAndCellsAllWaitThatIsADeadlock) {
  const Report report = run_host({{2, 1}, 2}, [] {
    this_machine::start_cells([] { static_cast<void>(receive({.type = 5})); });
    this_machine::wait_cells();
    return 0;
  });
  EXPECT_EQ(report.exit_status, 70);
  EXPECT_NE(report.reason.find("host program task 0: waits in wait_cells for the end of all cells"), std::string::npos)
      << report.reason;
  EXPECT_NE(report.reason.find("cell 1 task 0: waits in receive for a message from any cell, any task, type 5"),
            std::string::npos)
      << report.reason;
}

}  // namespace
}  // namespace aplib
