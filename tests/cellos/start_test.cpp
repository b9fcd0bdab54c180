// SPDX-License-Identifier: MIT
// Start, identity, geometry, time and the ends of a run. The numbers are those of the behaviours in docs/cellos.md.
#include <unistd.h>

#include <atomic>
#include <vector>

#include "support.hpp"

using namespace cellos_test;

namespace {

std::atomic<int> cells_seen;
std::atomic<int> host_seen;

TEST(Behaviour02, GeometryIsValidBeforeCconfxyAndFollowsIt) {
  cells_seen = 0;
  const int status = run_program(
      {{3, 1}, 2},
      [](int, char**) {
        EXPECT_EQ(getncel(), 3);
        EXPECT_EQ(getncelx(), 3);
        EXPECT_EQ(getncely(), 1);
        EXPECT_EQ(cconfxy(2, 4), 1);
        EXPECT_EQ(getncel(), 8);
        EXPECT_EQ(getncelx(), 2);
        EXPECT_EQ(getncely(), 4);
        EXPECT_EQ(ccreat("program", 0, nullptr), 1);
        EXPECT_EQ(waitstable(), 0);
        return 0;
      },
      [] {
        ++cells_seen;
        EXPECT_EQ(cellos_gettid(), 0);
        EXPECT_EQ(getncel(), 8);
        EXPECT_EQ(getncelx(), 2);
        EXPECT_EQ(getncely(), 4);
      });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cells_seen, 8);
}

TEST(Behaviour02, SeveralTasksPerCellByTid) {
  cells_seen = 0;
  const int status = run_program(
      {{2, 1}, 2},
      [](int, char**) {
        ccreat("program", 30, nullptr);
        ccreat("program", 7, nullptr);
        waitstable();
        return 0;
      },
      [] {
        // The two tasks of a cell greet each other.
        const int mine = cellos_gettid();
        const int other = mine == 30 ? 7 : 30;
        EXPECT_EQ(l_asend(getcid(), other, 5, &mine, sizeof mine), 1);
        EXPECT_EQ(*static_cast<int*>(l_arecv(getcid(), other, 5)), other);
        EXPECT_EQ(getmtid(), other);
        ++cells_seen;
      });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cells_seen, 4);
}

TEST_P(Shapes, Behaviour03_RowMajorNumbering) {
  const auto& grid = GetParam().grid;
  std::vector<std::atomic<int>> seen(grid.count());
  expect_cells(GetParam(), [&] {
    EXPECT_EQ(getcidx(), getcid() % getncelx());
    EXPECT_EQ(getcidy(), getcid() / getncelx());
    EXPECT_EQ(getncel(), int(grid.count()));
    EXPECT_EQ(gethcid(), 4096);
    ++seen[std::size_t(getcid())];
  });
  for (const auto& count : seen) EXPECT_EQ(count, 1);
}

TEST(Identity, TheHostIs4096OnBothSides) {
  const int status = run_program(
      {{2, 1}, 1},
      [](int, char**) {
        EXPECT_EQ(getcid(), 4096);
        EXPECT_EQ(gethcid(), 4096);
        ccreat("program", 0, nullptr);
        waitstable();
        return 0;
      },
      [] { EXPECT_EQ(gethcid(), 4096); });
  EXPECT_EQ(status, 0);
}

TEST(Behaviour16, EndsOfACellLeaveTheOthersAlone) {
  cells_seen = 0;
  const aplib::Report report = run_cells({{4, 1}, 2}, [] {
    const int cid = getcid();
    if (cid == 0) cell_exit(0);
    if (cid == 1) return;
    if (cid == 2) cellos_exit(0);
    // The last one still works alone after the others have ended or are about to.
    int word = 42;
    l_asend(cid, 0, 1, &word, sizeof word);
    word = 0;
    l_arecv(cid, 0, 1);
    readmsg(&word, sizeof word);
    EXPECT_EQ(word, 42);
    ++cells_seen;
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_EQ(cells_seen, 1);
}

TEST(Behaviour16, StatusOfCellExitAndExitIsTheCells) {
  const aplib::Report report = run_cells({{3, 1}, 2}, [] {
    if (getcid() == 1) cell_exit(5);
    if (getcid() == 2) cellos_exit(6);
  });
  ASSERT_EQ(report.cell_status.size(), 3U);
  EXPECT_EQ(report.cell_status[0], 0);
  EXPECT_EQ(report.cell_status[1], 5);
  EXPECT_EQ(report.cell_status[2], 6);
}

TEST(Behaviour16, ExitOfTheHostProgramIsItsReturn) {
  host_seen = 0;
  const int status = run_program(
      {{2, 1}, 2},
      [](int, char**) {
        ccreat("program", 0, nullptr);
        waitstable();
        ++host_seen;
        cellos_exit(9);
        ++host_seen;
        return 0;
      },
      [] {});
  EXPECT_EQ(status, 9);
  EXPECT_EQ(host_seen, 1);
}

TEST(Exit, OutsideTasksCellosExitReturns) {
  EXPECT_EXIT(
      {
        cellos_exit(3);
        ::_exit(4);
      },
      testing::ExitedWithCode(4), "");
}

TEST(Behaviour17, DgettimeCountsSeconds) {
  const double first = dgettime();
  timespec before{};
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &before);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while (double(now.tv_sec - before.tv_sec) + double(now.tv_nsec - before.tv_nsec) * 1e-9 < 0.01);
  const double passed = dgettime() - first;
  EXPECT_GE(passed, 0.0099);
  // A unit other than seconds would be wrong by a thousand; a slow computer is not.
  EXPECT_LT(passed, 10.0);
}

TEST(Run, WithoutAnyProgramSaysWhatToDefine) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cellos_run(nullptr, nullptr, 0, nullptr), 2);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("define void cell_main(void)"), std::string::npos) << text;
}

TEST(Run, ABadOptionIsOneLineAndUsage) {
  ::setenv("APLIB_CELLS", "two", 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cellos_run(
                nullptr, [] {}, 0, nullptr),
            2);
  const std::string text = testing::internal::GetCapturedStderr();
  ::unsetenv("APLIB_CELLS");
  EXPECT_NE(text.find("two"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

INSTANTIATE_TEST_SUITE_P(Start, Shapes, several_shapes(), shape_name);

std::atomic<bool> told;

// Both cells on one thread: the one that waits for a time to come lets the other one run.
TEST(Clock, ALoopOfItLetsOthersRun) {
  told = false;
  expect_cells({{2, 1}, 1}, [] {
    if (getcid() == 1) {
      told = true;
      return;
    }
    const double end = dgettime() + 20;
    while (dgettime() < end && !told) {
    }
    EXPECT_TRUE(told);
  });
}

}  // namespace
