// SPDX-License-Identifier: MIT
// Failures of tasks: exceptions, signals, stack overflow. Those that end the process run in a process of their own.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "cell/processor.hpp"
#include "machines.hpp"

extern "C" void call_opaquely(void (*function)());  // opaque_frame.c

#ifdef __SANITIZE_ADDRESS__
// A task that cannot be unwound leaves the exception that was to end it behind.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {  // NOLINT: its name
  return "leak:__cxa_allocate_exception\n";
}
#endif

namespace aplib {
namespace {

using namespace testing_support;

TEST(Failure, AnExceptionNamesCellAndTaskAndStopsTheOthers) {
  for (const Shape& shape : {Shape{{3, 1}, 1}, Shape{{3, 1}, 2}, Shape{{3, 1}, Options::threads_per_cell}}) {
    std::atomic<int> unwound{0};
    const Report report = run(shape, [&] {
      struct Watch {
        std::atomic<int>& count;
        ~Watch() { count.fetch_add(1); }
      } watch{unwound};
      barrier();  // a cell that has not begun by then would never begin
      if (me() == 1) {
        spawn([] { throw std::runtime_error("the sky is falling"); }, TaskId{6}).join();
      }
      static_cast<void>(receive());
    });
    EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::program_failed));
    EXPECT_EQ(report.reason, "cell 1 task 6: uncaught exception: the sky is falling");
    EXPECT_EQ(report.cell_status.at(1), 1);
    EXPECT_EQ(unwound.load(), 3) << shape.name();
  }
}

TEST(Failure, OthersThatNeverWaitStopAtTheirNextCall) {
  const Report report = run({{3, 1}, 2}, [] {
    if (me() == 0) throw std::runtime_error("enough");
    for (;;) {
      if (me() == 1) this_task::yield();
      if (me() == 2) this_task::sleep_for(std::chrono::microseconds(50));
    }
  });
  EXPECT_EQ(report.reason, "cell 0 task 0: uncaught exception: enough");
}

TEST(Failure, OthersThatSendProbeOrMeetStopToo) {
  for (int way = 0; way < 4; ++way) {
    const Report report = run({{2, 1}, 2}, [way] {
      if (me() == 0) {
        this_task::sleep_for(std::chrono::milliseconds(1));
        throw std::runtime_error("enough");
      }
      for (;;) {
        if (way == 0) static_cast<void>(probe());
        if (way == 1) static_cast<void>(reduce_sum(1, Scope::column));
        if (way == 2) spawn([] {}).join();
        if (way == 3) {
          send(this_cell::id(), 1);
          static_cast<void>(receive());
        }
      }
    });
    EXPECT_EQ(report.reason, "cell 0 task 0: uncaught exception: enough") << way;
  }
}

TEST(Failure, AnErrorOfTheLibraryKeepsItsText) {
  const Report report = run({{2, 1}, 1}, [] {
    if (me() == 1) send(cell(5), 1);
  });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_EQ(report.reason, "cell 1 task 0: send: there is no cell 5; the machine has cells 0..1 (2x1)");
}

TEST(Failure, AnythingCanBeThrown) {
  const Report report = run({{1, 1}, 1}, [] { throw 5; });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_EQ(report.reason, "cell 0 task 0: uncaught exception of a type not derived from std::exception");
}

TEST(Failure, TheFirstOfSeveralCounts) {
  const Report report = run({{8, 1}, 4}, [] { throw std::runtime_error("cell " + std::to_string(me())); });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.reason.find("uncaught exception: cell "), std::string::npos);
  EXPECT_EQ(report.reason.find('\n'), std::string::npos) << report.reason;
}

// A callback of C may wait; when the machine stops, its frame cannot be unwound.
TEST(Failure, ADeadlockIsReportedThroughFramesWithoutUnwindTables) {
  for (const Shape& shape : {Shape{{3, 1}, 1}, Shape{{3, 1}, 2}}) {
    const Report report = run(shape, [] { call_opaquely([] { static_cast<void>(receive()); }); });
    EXPECT_EQ(report.exit_status, 70) << shape.name();
    EXPECT_NE(report.reason.find("deadlock"), std::string::npos) << report.reason;
  }
}

TEST(Failure, OthersStopBelowNoexceptFunctions) {
  const Report report = run({{4, 1}, 2}, [] {
    if (me() == 1) throw std::runtime_error("enough");
    []() noexcept { static_cast<void>(receive()); }();
  });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_NE(report.reason.find("cell 1 task 0"), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find("enough"), std::string::npos) << report.reason;
}

TEST(Failure, ATaskMayExitBelowANoexceptFunction) {
  testing::internal::CaptureStderr();
  std::atomic<int> went_on{0};
  const Report report = run({{2, 1}, 1}, [&] {
    if (me() == 0) {
      spawn([&] {
        []() noexcept { this_task::exit(0); }();
        ++went_on;
      }).join();
    } else {
      call_opaquely([] { this_task::exit(5); });
      ++went_on;
    }
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(report.exit_status, 5) << report.reason;
  EXPECT_EQ(went_on.load(), 0);
  EXPECT_NE(said.find("cell 0 task 1: this_task::exit() was called below a noexcept function"), std::string::npos)
      << said;
  EXPECT_NE(said.find("cell 1 task 0: this_task::exit()"), std::string::npos) << said;
}

TEST(Failure, PthreadExitEndsTheTaskAlone) {
  if (sanitized) GTEST_SKIP() << "needs a build without sanitizers: their own pthread_exit comes first";
  std::atomic<int> ended{0};
  run_well({{2, 1}, 1}, [&] {
    spawn([&] {
      struct AtEnd {
        std::atomic<int>& count;
        ~AtEnd() { ++count; }
      } const at_end{ended};
      pthread_exit(nullptr);
    }).join();
    ++ended;
    if (me() == 1) call_opaquely([] { pthread_exit(nullptr); });
  });
  EXPECT_EQ(ended.load(), 4);
}

TEST(Failure, ExceptionsInsideATaskStayInside) {
  run_well({{4, 1}, 2}, [] {
    for (int i = 0; i < 100; ++i) {
      try {
        throw i;
      } catch (int value) {
        EXPECT_EQ(value, i);
      }
    }
  });
}

// --- in processes of their own

class FailureDeath : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

// The process ended by that signal. A sanitizer's handler, which gets the signal after ours, may end the process in
// another way.
auto ended_by(int signal) {
  return [signal](int status) {
    return testing::KilledBySignal(signal)(status) || (sanitized && !testing::ExitedWithCode(0)(status));
  };
}

[[noreturn]] void run_and_exit(const Shape& shape, std::function<void()> program) {
  std::exit(run(shape, std::move(program)).exit_status);
}

TEST_F(FailureDeath, TheReasonIsAlsoPrinted) {
  EXPECT_EXIT(run_and_exit({{2, 1}, 2},
                           [] {
                             if (me() == 1) throw std::runtime_error("told twice");
                           }),
              testing::ExitedWithCode(1), "aplib: cell 1 task 0: uncaught exception: told twice");
  EXPECT_EXIT(run_and_exit({{2, 1}, 2}, [] { static_cast<void>(receive()); }), testing::ExitedWithCode(70),
              "aplib: deadlock: .*\n.*cell 0 task 0: waits in receive");
}

volatile int* volatile low_address = reinterpret_cast<int*>(16);

TEST_F(FailureDeath, BadMemoryAccessNamesCellAndTask) {
  EXPECT_EXIT(run_and_exit({{3, 1}, 2},
                           [] {
                             if (me() == 2) {
                               spawn([] { *low_address = 1; }, TaskId{4}).join();
                             }
                           }),
              ended_by(SIGSEGV), "aplib: cell 2 task 4: SIGSEGV, bad memory access at address 0x10");
}

// A sanitizer would look at its shadow of the address first, and fault there.
__attribute__((no_sanitize("address", "thread", "undefined"))) void write_to(std::uintptr_t address) {
  *reinterpret_cast<volatile int*>(address) = 1;
}

TEST_F(FailureDeath, APointerCutTo32BitsIsTold) {
  static volatile std::uintptr_t cut = 0;
  for (const std::uintptr_t address : {std::uintptr_t{0x1234'5670}, ~std::uintptr_t{0} - 0x1234'567f}) {
    cut = address;
    EXPECT_EXIT(run_and_exit({{1, 1}, 1}, [] { write_to(cut); }), ended_by(SIGSEGV),
                "at address 0x[0-9a-f]*, which looks like a pointer that was cut to 32 bits");
  }
}

TEST_F(FailureDeath, BadArithmeticNamesCellAndTask) {
  EXPECT_EXIT(run_and_exit({{2, 1}, 1},
                           [] {
                             if (me() == 1) std::raise(SIGFPE);
                           }),
              ended_by(SIGFPE), "aplib: cell 1 task 0: SIGFPE, bad arithmetic");
}

TEST_F(FailureDeath, AbortNamesCellAndTask) {
  EXPECT_EXIT(run_and_exit({{2, 1}, 1},
                           [] {
                             if (me() == 1) std::abort();
                           }),
              ended_by(SIGABRT), "aplib: cell 1 task 0: SIGABRT, abort");
}

// Deep enough for any stack, and not optimised into a loop. It touches memory page by page, as calls do.
[[gnu::noinline]] int dig(int depth) {
  volatile char room[512];
  room[0] = static_cast<char>(depth);
  if (depth == 0) return room[0];
  return dig(depth - 1) + room[0];
}

TEST_F(FailureDeath, StackOverflowNamesTaskSizeAndRemedy) {
  EXPECT_EXIT(run_and_exit({{2, 1}, 2},
                           [] {
                             if (me() == 1) static_cast<void>(dig(100'000'000));
                           }),
              testing::ExitedWithCode(71),
              "aplib: cell 1 task 0: stack overflow: it used more than its 256 KiB; raise stack-size");
}

// A frame larger than a page may touch its far end first.
TEST_F(FailureDeath, ALargeFrameDoesNotJumpOverTheGuard) {
  EXPECT_EXIT(run_and_exit({{1, 1}, 1},
                           [] {
                             volatile char* const beyond = Processor::current()->running()->stack.low - 10'000;
                             *beyond = 1;
                           }),
              testing::ExitedWithCode(71), "stack overflow");
}

TEST_F(FailureDeath, StackOverflowOfASmallSpawnedTask) {
  EXPECT_EXIT(
      {
        Options options = options_of({{1, 1}, 1});
        options.stack_bytes = 64 * 1024;
        Machine machine(options);
        std::exit(
            machine.run([] { spawn([] { static_cast<void>(dig(100'000'000)); }, TaskId{3}).join(); }).exit_status);
      },
      testing::ExitedWithCode(71), "aplib: cell 0 task 3: stack overflow: it used more than its 64 KiB");
}

/// Both cells of a machine do it at the same time, each on a thread of its own.
[[noreturn]] void both(void (*fail)()) {
  static std::atomic<int> ready{0};
  run_and_exit({{2, 1}, 2}, [fail] {
    ready.fetch_add(1);
    while (ready.load() < 2) this_task::yield();
    fail();
  });
}

TEST_F(FailureDeath, OfTwoAtOnceOneIsTold) {
  if (sanitized) GTEST_SKIP() << "needs a build without sanitizers: they report a bad access in their own way";
  for (int round = 0; round < 10; ++round) {
    EXPECT_EXIT(both([] { *low_address = 1; }), testing::KilledBySignal(SIGSEGV),
                "^aplib: cell [01] task 0: SIGSEGV[^\n]*\n$");
    const auto let_a_thread_throw = [] { std::thread([] { throw 1; }).join(); };
    EXPECT_EXIT(both(let_a_thread_throw), testing::KilledBySignal(SIGABRT),
                "^terminate called after throwing an instance of 'int'\n$");
  }
}

TEST_F(FailureDeath, SignalHandlersAreGoneAfterTheRun) {
  EXPECT_EXIT(
      {
        run_well({{2, 1}, 2}, [] { barrier(); });
        struct sigaction now {};
        sigaction(SIGINT, nullptr, &now);
        std::exit(now.sa_handler == SIG_DFL ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace aplib
