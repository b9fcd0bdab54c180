// SPDX-License-Identifier: MIT
// State of a task that must survive a switch, also to another thread: errno, the C++ exception state, the rounding
// mode.
#include <gtest/gtest.h>

#include <cerrno>
#include <cfenv>
#include <exception>
#include <stdexcept>
#include <string>

#include "machines.hpp"

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

}  // namespace
}  // namespace aplib
