// SPDX-License-Identifier: MIT
// Failures: the machine ends with one text, tasks unwind, and no call by them or their destructors ends the process.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "aplib/one_sided.hpp"
#include "cell/processor.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

constexpr int failed = static_cast<int>(ExitStatus::program_failed);

struct AtEnd {
  std::function<void()> action;
  ~AtEnd() { action(); }
};

struct DestructorCall {
  const char* name;
  std::function<void()> action;
};

std::vector<DestructorCall> blocking_calls() {
  return {
      {"send", [] { send(cell(1), 1); }},
      {"a large send", [] { send(cell(1), std::vector<std::byte>(100'000)); }},
      {"yield", [] { this_task::yield(); }},
      {"sleep_for", [] { this_task::sleep_for(std::chrono::milliseconds(1)); }},
      {"probe",
       [] {
         for (int i = 0; i < 10; ++i) EXPECT_FALSE(probe());
       }},
      {"put",
       [] {
         int x = 0;
         put(cell(1), x, &x);
       }},
      {"get",
       [] {
         int x = 7;
         get(cell(1), x, &x);
         EXPECT_EQ(x, 7);
       }},
      {"receive", [] { EXPECT_EQ(receive().size(), 0U); }},
      {"receive_into",
       [] {
         std::byte buffer[4]{};
         EXPECT_EQ(receive_into(buffer).bytes, 0U);
       }},
      {"join", [] { spawn([] {}).join(); }},
      {"barrier", [] { barrier(); }},
      {"reduce", [] { EXPECT_EQ(reduce_sum(5), 5); }},
  };
}

class CallsOfDestructors : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, CallsOfDestructors, testing::Values(Shape{{2, 1}, 1}, Shape{{2, 1}, 2}), shape_name);

TEST_P(CallsOfDestructors, ReturnWhileTheMachineStops) {
  for (const DestructorCall& call : blocking_calls()) {
    SCOPED_TRACE(call.name);
    std::atomic<int> called{0};
    const Report report = run(GetParam(), [&] {
      if (me() == 0) {
        AtEnd leave{[&] {
          call.action();
          ++called;
        }};
        send(cell(1), 0, {.type = 2});
        static_cast<void>(receive({.type = 1}));
      } else {
        static_cast<void>(receive({.type = 2}));
        throw std::runtime_error("bug of cell 1");
      }
    });
    EXPECT_EQ(called.load(), 1);
    EXPECT_EQ(report.exit_status, failed);
    EXPECT_EQ(report.reason, "cell 1 task 0: uncaught exception: bug of cell 1");
  }
}

// The destructor runs because of the task's own error, and already waits when the machine begins to stop.
TEST_P(CallsOfDestructors, ThatWaitAlreadyReturnWhenTheMachineStops) {
  const std::vector<DestructorCall> calls{
      {"receive", [] { EXPECT_EQ(receive({.type = 1}).size(), 0U); }},
      {"sleep_for", [] { this_task::sleep_for(std::chrono::hours(1)); }},
      {"join", [] { spawn([] { static_cast<void>(receive({.type = 1})); }).join(); }},
      {"barrier", [] { barrier(); }},
  };
  for (const DestructorCall& call : calls) {
    SCOPED_TRACE(call.name);
    std::atomic<int> called{0};
    const Report report = run(GetParam(), [&] {
      if (me() == 0) {
        try {
          AtEnd leave{[&] {
            send(cell(1), 0, {.type = 2});
            call.action();
            ++called;
          }};
          throw std::runtime_error("of cell 0");
        } catch (const std::runtime_error&) {
          static_cast<void>(receive({.type = 1}));
        }
      } else {
        static_cast<void>(receive({.type = 2}));
        for (int i = 0; i < 100; ++i) this_task::yield();
        throw std::runtime_error("bug of cell 1");
      }
    });
    EXPECT_EQ(called.load(), 1);
    EXPECT_EQ(report.exit_status, failed);
    EXPECT_EQ(report.reason, "cell 1 task 0: uncaught exception: bug of cell 1");
  }
}

// An error while a task polls is not that task's. The task must not see it, and its receive must not stay open.
TEST(Failure, OfPollingEndsTheMachineAndIsNotThrownIntoTheTaskThatPolled) {
  std::atomic<bool> caught{false};
  std::atomic<bool> unwound{false};
  std::atomic<bool> open{true};
  const Report report = run(Shape{{2, 1}, 2}, [&] {
    if (me() == 0) {
      static_cast<void>(receive({.type = 1}));
      const CallEntry call{[](Processor&, void*) { throw Error(Errc::exhausted, "no memory for a message"); }, nullptr};
      Processor::current()->outbound().push(1, EntryKind::call, 0, 0, 0, call);
      static_cast<void>(receive({.type = 2}));
      return;
    }
    const TaskControl& self = *Processor::current()->running();
    AtEnd at_end{[&] {
      unwound = true;
      open = self.posted.open;
    }};
    send(cell(0), 0, {.type = 1});
    try {
      static_cast<void>(receive({.type = 9}));
    } catch (const Error&) {
      caught = true;
    }
  });
  EXPECT_FALSE(caught);
  EXPECT_TRUE(unwound);
  EXPECT_FALSE(open);
  EXPECT_EQ(report.exit_status, failed);
  EXPECT_EQ(report.reason, "cells 0-1: no memory for a message");
}

// Id 9 waits for the end of id 5, which ends first when the machine stops; then its control block is gone.
TEST(Failure, AJoinThatEndsByAStopLeavesTheJoinedTaskAlone) {
  for (const std::uint32_t joined : {5U, 13U}) {
    const Report report = run(Shape{{2, 1}, 1}, [joined] {
      if (me() == 1) {
        static_cast<void>(receive({.type = 1}));
        throw std::runtime_error("stop");
      }
      Task sleeper = spawn([] { static_cast<void>(receive({.type = 7})); }, TaskId{joined});
      Task waiter = spawn([&] { sleeper.join(); }, TaskId{9});
      for (int i = 0; i < 10; ++i) this_task::yield();
      send(cell(1), 0, {.type = 1});
      waiter.join();
    });
    EXPECT_EQ(report.exit_status, failed);
    EXPECT_EQ(report.reason, "cell 1 task 0: uncaught exception: stop");
  }
}

// In its own process, because it takes away memory. Exit statuses from 10 on are the test's own, not the machine's.
[[noreturn]] void run_out_of_memory() {
  const Report report = run(Shape{{2, 1}, 2}, [] {
    if (me() == 0) {
      static_cast<void>(receive({.type = 1}));
      const rlimit limit{resident_bytes() + (std::uint64_t{256} << 20), RLIM_INFINITY};
      setrlimit(RLIMIT_AS, &limit);
      for (long i = 0; i < 50'000'000; ++i) send(cell(1), i, {.type = 5});
    } else {
      send(cell(0), 1, {.type = 1});
      static_cast<void>(receive({.type = 9}));
    }
  });
  std::fprintf(stderr, "reason: %s\n", report.reason.c_str());
  std::_Exit(report.exit_status);
}

TEST(FailureDeathTest, WithoutMemoryIsToldInOneText) {
  if (sanitized) GTEST_SKIP() << "needs a build without sanitizers: they need more address space than any limit";
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(run_out_of_memory(), testing::ExitedWithCode(failed), "no memory|bad_alloc");
}

}  // namespace
}  // namespace aplib
