// SPDX-License-Identifier: MIT
// A caller's mistakes end the run with one message, whose text is part of the interface.
#include <functional>
#include <string>

#include "support.hpp"

using namespace cellos_test;

namespace {

struct Misuse {
  const char* name;
  std::function<void()> act;  // on cell 0 of a 2x1 machine
  const char* text;
};

void PrintTo(const Misuse& misuse, std::ostream* out) { *out << misuse.name; }

class Misuses : public testing::TestWithParam<Misuse> {};

TEST_P(Misuses, SayWhatIsWrong) {
  testing::internal::CaptureStderr();
  const aplib::Report report = run_cells({{2, 1}, 2}, [] {
    if (getcid() == 0) GetParam().act();
  });
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.reason.find(GetParam().text), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find("cell 0"), std::string::npos) << report.reason;
  EXPECT_NE(printed.find(GetParam().text), std::string::npos) << printed;
}

char byte = 0;
int number = 0;
double real = 0;

const Misuse misuses[] = {
    {"SendToNoCell", [] { l_asend(2, 0, 0, &byte, 1); }, "l_asend: there is no cell 2"},
    {"SendToNegativeCell", [] { l_asend(-1, 0, 0, &byte, 1); },
     "l_asend: there is no cell -1; the machine has cells 0..1 (2x1) and the host is 4096"},
    {"SendToAnyTask", [] { l_asend(1, ANY_TASK, 0, &byte, 1); },
     "l_asend: -1 is no task id; tasks are 0..1048575, and ANY_TASK is for receives"},
    {"SendToHugeTask", [] { l_asend(1, 1 << 20, 0, &byte, 1); }, "l_asend: 1048576 is no task id"},
    {"SendAnyType", [] { l_asend(1, 0, ANY_TYPE, &byte, 1); },
     "l_asend: -1 is no message type; types are 0..16777215, and ANY_TYPE is for receives"},
    {"SendHugeType", [] { l_asend(1, 0, 1 << 24, &byte, 1); }, "l_asend: 16777216 is no message type"},
    {"SendNegativeSize", [] { l_asend(1, 0, 0, &byte, -4); }, "l_asend: size is -4; give a number of bytes, 0 or more"},
    {"SendNull", [] { l_asend(1, 0, 0, nullptr, 8); }, "l_asend: the buffer is NULL but size is 8"},
    {"HSendWithoutHost", [] { h_send(0, &byte, 1); }, "h_send: this program has no host half; define host_main"},
    {"HRecvWithoutHost", [] { h_recv(0); }, "h_recv: this program has no host half; define host_main"},
    {"CbroadTask", [] { cbroad(-2, 0, &byte, 1); }, "cbroad: -2 is no task id"},
    {"CbroadNull", [] { cbroad(0, 0, nullptr, 1); }, "cbroad: the buffer is NULL"},
    {"ReceiveFromNoCell", [] { l_arecv(7, 0, 0); }, "l_arecv: there is no cell 7"},
    {"ReceiveFromNegativeCell", [] { l_arecv(-2, 0, 0); }, "l_arecv: there is no cell -2"},
    {"ReceiveType", [] { l_arecv(0, 0, -2); }, "l_arecv: -2 is no message type"},
    {"ReceiveTask", [] { l_arecv(0, -2, 0); }, "l_arecv: -2 is no task id"},
    {"ProbeNoCell", [] { l_aqrecv(9, 0, 0); }, "l_aqrecv: there is no cell 9"},
    {"ReadBeforeReceive", [] { readmsg(&byte, 1); }, "readmsg: there is no message to read"},
    {"ReadStored",
     [] {
       xy_send(0, 0, 0, &byte, 1);
       xy_recvs(0, 0, 0, &byte, 1);
       readmsg(&byte, 1);
     },
     "xy_recvs has stored its message already"},
    {"ReadNegative",
     [] {
       l_asend(0, 0, 0, &byte, 1);
       crecv();
       readmsg(&byte, -1);
     },
     "readmsg: size is -1"},
    {"MlenBeforeReceive", [] { getmlen(); }, "getmlen: no message was received yet"},
    {"McidBeforeReceive", [] { getmcid(); }, "getmcid: no message was received yet"},
    {"LineNull", [] { xy_send(0, 0, 0, nullptr, 4); }, "xy_send: the buffer is NULL"},
    {"LineStoreNull", [] { x_recvs(0, 0, nullptr, 4); }, "x_recvs: the buffer is NULL"},
    {"LineType", [] { y_send(0, -1, &byte, 1); }, "y_send: -1 is no message type"},
    {"BroadcastRoot", [] { xy_brd(-1, &byte, 1); }, "xy_brd: there is no cell -1"},
    {"BroadcastBigRoot", [] { xy_brd(2, &byte, 1); },
     "xy_brd: root cell 2 is not one of the cells that take part (0..1)"},
    {"BroadcastRow", [] { x_brd(5, &byte, 1); },
     "x_brd: root 5 is neither an x coordinate (0..1) nor a cell of row 0 (0..1)"},
    {"BroadcastColumn", [] { y_brd(1, &byte, 1); },
     "y_brd: root 1 is neither a y coordinate (0..0) nor a cell of column 0"},
    {"BroadcastSize", [] { xy_brd(0, &byte, -1); }, "xy_brd: size is -1"},
    {"SumNull", [] { xy_isum(1, nullptr); }, "xy_isum: result is NULL"},
    {"MaxNull", [] { x_dmax(1, 0, nullptr, &number); }, "x_dmax: max is NULL"},
    {"MinIdNull", [] { y_dmin(1, 0, &real, nullptr); }, "y_dmin: min_id is NULL"},
    {"CconfxyOnCell", [] { cconfxy(1, 1); }, "cconfxy: only the host program can call it"},
    {"CcreatOnCell", [] { ccreat("x", 0, nullptr); }, "ccreat: only the host program can call it"},
    {"InitstatOnCell", [] { initstat(1); }, "initstat: only the host program can call it"},
    {"WaitstableOnCell", [] { waitstable(); }, "waitstable: only the host program can call it"},
};

INSTANTIATE_TEST_SUITE_P(Cell, Misuses, testing::ValuesIn(misuses),
                         [](const testing::TestParamInfo<Misuse>& info) { return info.param.name; });

struct HostMisuse {
  const char* name;
  void (*act)();
  const char* text;
};

void PrintTo(const HostMisuse& misuse, std::ostream* out) { *out << misuse.name; }

class HostMisuses : public testing::TestWithParam<HostMisuse> {};

TEST_P(HostMisuses, SayWhatIsWrong) {
  static void (*act)();
  act = GetParam().act;
  testing::internal::CaptureStderr();
  const int status = run_program(
      {{2, 1}, 2},
      [](int, char**) {
        act();
        return 0;
      },
      [] { h_recv(0); });
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_NE(status, 0);
  EXPECT_NE(printed.find(GetParam().text), std::string::npos) << printed;
}

const HostMisuse host_misuses[] = {
    {"Grid", [] { cconfxy(0, 4); }, "cconfxy: 0x4 is no grid"},
    {"NegativeGrid", [] { cconfxy(2, -1); }, "cconfxy: 2x-1 is no grid"},
    {"HugeGrid", [] { cconfxy(1000, 1000); }, "together at most 16384 cells"},
    {"LateGrid",
     [] {
       ccreat("x", 0, nullptr);
       cconfxy(1, 1);
     },
     "cconfxy: programs run on the cells already"},
    {"SameTaskTwice",
     [] {
       ccreat("x", 3, nullptr);
       ccreat("x", 3, nullptr);
       while (crecv() != nullptr) {
       }
     },
     "cannot start a task 3: there is one already; choose another task id"},
    {"SendBeforeCells", [] { l_asend(0, 0, 0, &byte, 1); }, "l_asend: no program runs on the cells yet"},
    {"NoFile", [] { ccreat(nullptr, 0, nullptr); }, "ccreat: the program's file name is NULL"},
    {"BadTask", [] { ccreat("x", -1, nullptr); }, "ccreat: -1 is no task id"},
    {"SendToCellOutside",
     [] {
       ccreat("x", 0, nullptr);
       l_asend(2, 0, 0, &byte, 1);
     },
     "l_asend: there is no cell 2"},
    {"HSend", [] { h_send(0, &byte, 1); }, "h_send: only cells can call it"},
    {"HRecv", [] { h_recv(0); }, "h_recv: only cells can call it"},
    {"Sync", [] { sync(0, 0); }, "sync: only cells can call it"},
    {"Sum", [] { xy_isum(0, &number); }, "xy_isum: only cells can call it"},
    {"Broadcast", [] { xy_brd(0, &byte, 1); }, "xy_brd: only cells can call it"},
    {"Line", [] { xy_send(0, 1, 0, &byte, 1); }, "xy_send: only cells can call it"},
    {"LineReceive", [] { xy_recv(0, 1, 0); }, "xy_recv: only cells can call it"},
    {"Pstat", [] { pstat(1); }, "pstat: only cells can call it"},
    {"X", [] { getcidx(); }, "getcidx: only cells can call it"},
    {"CellExit", [] { cell_exit(0); }, "cell_exit: only cells can call it"},
};

INSTANTIATE_TEST_SUITE_P(Host, HostMisuses, testing::ValuesIn(host_misuses),
                         [](const testing::TestParamInfo<HostMisuse>& info) { return info.param.name; });

TEST(Errors, CcreatWithoutACellProgramSaysHowToGiveOne) {
  testing::internal::CaptureStderr();
  const int status = run_program(
      {{2, 1}, 2}, [](int, char**) { return ccreat("worker", 0, nullptr); }, nullptr);
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_NE(status, 0);
  EXPECT_NE(printed.find("ccreat: no cell program is known for 'worker'; define cell_main()"), std::string::npos)
      << printed;
}

TEST(Errors, ReceiveFromACellThatHasEndedSaysSo) {
  testing::internal::CaptureStderr();
  const aplib::Report report = run_cells({{2, 1}, 2}, [] {
    if (getcid() == 0) l_arecv(1, 0, 0);
  });
  testing::internal::GetCapturedStderr();
  EXPECT_NE(report.exit_status, 0);
  EXPECT_NE(report.reason.find("l_arecv"), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find("cell 1"), std::string::npos) << report.reason;
}

TEST(Errors, ADeadlockReportNamesTheCalls) {
  testing::internal::CaptureStderr();
  const aplib::Report report = run_cells({{2, 1}, 2}, [] {
    int word = 0;
    if (getcid() == 0) l_arecv(1, 0, 3);
    if (getcid() == 1) xy_recvs(1, 0, 4, &word, sizeof word);
  });
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(report.exit_status, 70);
  EXPECT_NE(printed.find("l_arecv"), std::string::npos) << printed;
  EXPECT_NE(printed.find("xy_recvs"), std::string::npos) << printed;
}

TEST(Errors, MessagesWithTheHostAreCheckedToo) {
  const int status = run_program(
      {{1, 1}, 1},
      [](int, char**) {
        ccreat("program", 0, nullptr);
        waitstable();
        return 0;
      },
      [] {
        const auto text = [](auto&& call) {
          try {
            call();
          } catch (const aplib::Error& error) {
            return std::string(error.what());
          }
          return std::string();
        };
        EXPECT_EQ(text([] { h_send(0, &byte, -1); }),
                  "cell 0 task 0: h_send: size is -1; give a number of bytes, 0 or more");
        EXPECT_EQ(text([] { h_send(-7, &byte, 1); }),
                  "cell 0 task 0: h_send: -7 is no message type; types are 0..16777215");
        EXPECT_EQ(text([] { h_recv(-3); }), "cell 0 task 0: h_recv: -3 is no message type; types are 0..16777215");
      });
  EXPECT_EQ(status, 0);
}

TEST(Errors, ADeadlockOfTheHostNamesItsCalls) {
  testing::internal::CaptureStderr();
  const int status = run_program(
      {{2, 1}, 2},
      [](int, char**) {
        ccreat("program", 0, nullptr);
        waitstable();
        return 0;
      },
      [] { h_recv(5); });
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 70);
  EXPECT_NE(printed.find("waitstable"), std::string::npos) << printed;
  EXPECT_NE(printed.find("h_recv"), std::string::npos) << printed;
}

TEST(Errors, ACellThatHasEndedCannotTakePart) {
  testing::internal::CaptureStderr();
  const aplib::Report report = run_cells({{3, 1}, 2}, [] {
    if (getcid() != 2) sync(0, 0);
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.reason.find("sync: cell 2 has ended and takes no part any more"), std::string::npos)
      << report.reason;
}

TEST(Errors, WhoWaitsForACellThatHasFailedEndsTheRunWithItsStatus) {
  testing::internal::CaptureStderr();
  const aplib::Report together = run_cells({{3, 1}, 2}, [] {
    if (getcid() == 2) aplib::this_task::exit(3);
    sync(0, 0);
  });
  const aplib::Report alone = run_cells({{3, 1}, 2}, [] {
    if (getcid() == 2) aplib::this_task::exit(3);
    if (getcid() == 0) l_arecv(2, 0, 0);
  });
  testing::internal::GetCapturedStderr();
  for (const aplib::Report& report : {together, alone}) {
    EXPECT_EQ(report.exit_status, 3) << report.reason;
    EXPECT_EQ(report.cell_status[2], 3);
    EXPECT_NE(report.reason.find("cell 2 has ended"), std::string::npos) << report.reason;
  }
}

TEST(Errors, AnErrorCanBeCaughtAndTheRunGoesOn) {
  expect_cells({{2, 1}, 2}, [] {
    EXPECT_THROW(l_asend(5, 0, 0, &byte, 1), aplib::Error);
    int sum = 0;
    xy_isum(1, &sum);
    EXPECT_EQ(sum, 2);
  });
}

TEST(Errors, SizesOfABroadcastMustAgree) {
  testing::internal::CaptureStderr();
  const aplib::Report report = run_cells({{2, 1}, 2}, [] {
    char bytes[8] = {};
    xy_brd(0, bytes, getcid() == 0 ? 8 : 4);
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.reason.find("xy_brd"), std::string::npos) << report.reason;
}

}  // namespace
