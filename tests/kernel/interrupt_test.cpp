// SPDX-License-Identifier: MIT
// Ctrl-C and SIGTERM: the machine stops, stacks unwind, and the status is 128 + signal, also while all tasks wait or
// compute.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/sanitizer.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

enum class Doing { receiving, meeting, sleeping, joining, talking };

// Runs a machine in which all cells do this, interrupts it once they have begun, and exits with the machine's status.
[[noreturn]] void interrupt(const Shape& shape, Doing doing, int signal, bool with_host = false) {
  Options options = options_of(shape);
  options.deadlock_report = false;  // all may wait, so that only the signal ends the machine
  Machine machine(options);
  std::atomic<std::uint32_t> begun{0};
  std::atomic<std::uint32_t> unwound{0};
  std::thread user([&] {
    sigset_t stop_signals;  // the thread that presses Ctrl-C is not the program's: the signal is for the others
    sigemptyset(&stop_signals);
    sigaddset(&stop_signals, SIGINT);
    sigaddset(&stop_signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
    while (begun.load() < shape.cells.count()) std::this_thread::yield();
    kill(getpid(), signal);
  });
  const auto program = [&] {
    struct Watch {
      std::atomic<std::uint32_t>& count;
      ~Watch() { count.fetch_add(1); }
    } watch{unwound};
    begun.fetch_add(1);
    switch (doing) {
      case Doing::receiving:
        static_cast<void>(receive({.type = 1}));
        break;
      case Doing::meeting:
        if (me() == 0) static_cast<void>(receive());
        barrier();
        break;
      case Doing::sleeping:
        this_task::sleep_for(std::chrono::hours(1));
        break;
      case Doing::joining:
        spawn([] { static_cast<void>(receive()); }).join();
        break;
      case Doing::talking:
        for (;;) {
          send(cell((me() + 1) % this_machine::cell_count()), 1);
          static_cast<void>(receive());
        }
    }
  };
  const Report report = with_host ? machine.run_host([&] {
    this_machine::start_cells(program);
    this_machine::wait_cells();
    return 0;
  })
                                  : machine.run(program);
  user.join();
  std::fprintf(stderr, "unwound %u\nreason %s\n", unwound.load(), report.reason.c_str());
  std::exit(report.exit_status);
}

class Interrupt : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    if (APLIB_TSAN)
      GTEST_SKIP() << "needs a build without ThreadSanitizer: it keeps signals back and now and then loses one";
    testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
};
INSTANTIATE_TEST_SUITE_P(, Interrupt,
                         testing::Values(Shape{{3, 1}, 1}, Shape{{3, 1}, 2}, Shape{{3, 1}, Options::threads_per_cell}),
                         shape_name);

TEST_P(Interrupt, EndsAMachineInWhichAllReceive) {
  EXPECT_EXIT(interrupt(GetParam(), Doing::receiving, SIGINT), testing::ExitedWithCode(130), "unwound 3");
}

TEST_P(Interrupt, EndsAMachineInACollective) {
  EXPECT_EXIT(interrupt(GetParam(), Doing::meeting, SIGINT), testing::ExitedWithCode(130), "unwound 3");
}

TEST_P(Interrupt, EndsAMachineInWhichAllSleep) {
  EXPECT_EXIT(interrupt(GetParam(), Doing::sleeping, SIGINT), testing::ExitedWithCode(130), "unwound 3");
}

TEST_P(Interrupt, EndsAMachineInWhichAllJoin) {
  EXPECT_EXIT(interrupt(GetParam(), Doing::joining, SIGINT), testing::ExitedWithCode(130), "unwound 3");
}

TEST_P(Interrupt, EndsABusyMachine) {
  EXPECT_EXIT(interrupt(GetParam(), Doing::talking, SIGINT), testing::ExitedWithCode(130), "unwound 3");
}

TEST_P(Interrupt, EndsAHostProgramThatWaits) {
  EXPECT_EXIT(interrupt(GetParam(), Doing::receiving, SIGINT, true), testing::ExitedWithCode(130), "unwound 3");
}

TEST_P(Interrupt, SaysSo) {
  EXPECT_EXIT(interrupt(GetParam(), Doing::receiving, SIGINT), testing::ExitedWithCode(130),
              "aplib: SIGINT: stopping the machine");
}

TEST_P(Interrupt, SigtermStopsItToo) {
  EXPECT_EXIT(interrupt(GetParam(), Doing::receiving, SIGTERM), testing::ExitedWithCode(128 + SIGTERM), "unwound 3");
}

TEST_P(Interrupt, ATaskMaySendItToItself) {
  const auto raise_it = [] {
    const Report report = run(GetParam(), [] {
      if (me() == 0) std::raise(SIGTERM);
      static_cast<void>(receive());
    });
    std::exit(report.exit_status);
  };
  EXPECT_EXIT(raise_it(), testing::ExitedWithCode(128 + SIGTERM), "aplib: SIGTERM: stopping the machine");
}

}  // namespace
}  // namespace aplib
