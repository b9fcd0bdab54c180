// SPDX-License-Identifier: MIT
// State of a task that must survive a switch, also to another thread: errno, the C++ exception state, the rounding
// mode.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cfenv>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include "machines.hpp"
#include "task/switch.hpp"

namespace aplib {
namespace {

using namespace testing_support;

class FlowState : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, FlowState,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{8, 1}, 2}, Shape{{4, 1}, Options::threads_per_cell}),
                         shape_name);

// Not inlined, because the test itself must not keep the address of errno across a switch.
[[gnu::noinline]] void set_errno(int value) { errno = value; }
[[gnu::noinline]] int get_errno() { return errno; }

TEST_P(FlowState, ErrnoIsEachTasksOwn) {
  run_well(GetParam(), [] {
    const auto body = [](int mine) {
      for (int i = 0; i < 50; ++i) {
        set_errno(mine + i);
        this_task::yield();
        ASSERT_EQ(get_errno(), mine + i);
      }
    };
    Task first = spawn([&] { body(1000); });
    Task second = spawn([&] { body(2000); });
    body(3000);
    first.join();
    second.join();
  });
}

std::string text_of_current() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST_P(FlowState, ASwitchInsideACatchBlockKeepsTheExceptionBeingHandled) {
  run_well(GetParam(), [] {
    const auto body = [](const std::string& name) {
      for (int i = 0; i < 20; ++i) {
        const std::string text = name + std::to_string(i);
        try {
          throw std::runtime_error(text);
        } catch (const std::exception& error) {
          EXPECT_NE(std::current_exception(), nullptr);
          this_task::yield();
          EXPECT_EQ(error.what(), text);
          EXPECT_EQ(text_of_current(), text);
          this_task::yield();
        }
        EXPECT_EQ(std::current_exception(), nullptr);
        this_task::yield();
        EXPECT_EQ(std::current_exception(), nullptr);
      }
    };
    Task first = spawn([&] { body("first "); });
    Task second = spawn([&] { body("second "); });
    body("third ");
    first.join();
    second.join();
  });
}

TEST_P(FlowState, NestedHandlersRethrowTheirOwn) {
  run_well(GetParam(), [] {
    const auto body = [](const std::string& name) {
      std::string seen;
      try {
        try {
          throw std::runtime_error(name + " outer");
        } catch (...) {
          this_task::yield();
          try {
            throw std::logic_error(name + " inner");
          } catch (...) {
            this_task::yield();
            seen += text_of_current();
            this_task::yield();
          }
          seen += ", " + text_of_current();
          this_task::yield();
          throw;
        }
      } catch (const std::runtime_error& error) {
        this_task::yield();
        seen += std::string(", ") + error.what();
      }
      EXPECT_EQ(seen, name + " inner, " + name + " outer, " + name + " outer");
    };
    Task first = spawn([&] { body("a"); });
    Task second = spawn([&] { body("b"); });
    body("c");
    first.join();
    second.join();
  });
}

TEST_P(FlowState, ASwitchWhileAStackUnwindsKeepsTheCountOfUncaughtExceptions) {
  run_well(GetParam(), [] {
    struct YieldsInDestructor {
      ~YieldsInDestructor() {
        EXPECT_EQ(std::uncaught_exceptions(), 1);
        this_task::yield();
        EXPECT_EQ(std::uncaught_exceptions(), 1);
      }
    };
    const auto body = [](const std::string& name) {
      for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(std::uncaught_exceptions(), 0);
        try {
          const YieldsInDestructor watch;
          throw std::runtime_error(name);
        } catch (const std::exception& error) {
          EXPECT_EQ(error.what(), name);
        }
        EXPECT_EQ(std::uncaught_exceptions(), 0);
        this_task::yield();
      }
    };
    Task first = spawn([&] { body("first"); });
    body("second");
    first.join();
  });
}

TEST_P(FlowState, AnExceptionPointerTravelsBetweenTasks) {
  run_well(GetParam(), [] {
    std::exception_ptr carried;
    spawn([&] {
      try {
        throw std::runtime_error("from afar");
      } catch (...) {
        carried = std::current_exception();
        this_task::yield();
      }
    }).join();
    ASSERT_NE(carried, nullptr);
    EXPECT_THROW(std::rethrow_exception(carried), std::runtime_error);
  });
}

TEST_P(FlowState, TheRoundingModeIsEachTasksOwn) {
  run_well(GetParam(), [] {
    Task other = spawn([] {
      std::fesetround(FE_UPWARD);
      for (int i = 0; i < 10; ++i) {
        this_task::yield();
        EXPECT_EQ(std::fegetround(), FE_UPWARD);
      }
    });
    for (int i = 0; i < 10; ++i) {
      this_task::yield();
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    }
    other.join();
  });
}

// Compilers keep the addresses that __errno_location() and its like give, and a flow may go on on another thread.
TEST(FlowOnAnotherThread, HasThePlacesOfThatThread) {
  ThreadState one, other;
  one.attach();
  std::thread([&] { other.attach(); }).join();
  ASSERT_NE(one.errno_location, other.errno_location);
  std::array<const void*, 40> stack{};
  stack.fill(&stack);
  for (std::size_t i = 0; i < one.kept_places.size(); ++i) {
    stack[3 * i + 4] = one.kept_places[i];
    stack[3 * i + 5] = static_cast<const char*>(one.kept_places[i]) + 1;
    stack[3 * i + 6] = other.kept_places[i];
  }
  std::array<const void*, 40> expected = stack;
  for (std::size_t i = 0; i < one.kept_places.size(); ++i) expected[3 * i + 4] = other.kept_places[i];
  stack[2] = expected[2] = one.errno_location;    // below the flow's context
  stack[39] = expected[39] = one.errno_location;  // above the end of its stack
  Flow flow;
  flow.context = &stack[3];
  rebase_flow(flow, reinterpret_cast<const char*>(&stack[39]), one, other);
  EXPECT_EQ(stack, expected);
}

}  // namespace
}  // namespace aplib
