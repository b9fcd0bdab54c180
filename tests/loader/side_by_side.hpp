// SPDX-License-Identifier: MIT
// SideBySide: runs a program that works in steps in several instances in turn, and compares them with the same program
// alone in a process. The program is C and defines `void step(int number)`, which reports its results by say(format,
// ...), or by ended(result, error number) for a call that fails. Each instance must report what the program alone
// reports. Then no instance has seen what another did.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile.hpp"
#include "loader/context.hpp"
#include "running.hpp"

namespace aplib::loader::test {

/// An instance's surroundings and results.
struct Side {
  std::vector<std::string> environment{"PATH=/usr/bin:/bin"};
  std::string input = {};
  std::string said = {};
  std::vector<std::string> warnings = {};
};

class SideBySide : public ::testing::Test {
 protected:
  /// Runs steps 0..steps-1 of all sides in turn: all sides do a step before any does the next.
  std::vector<Side> by_turns(std::string_view source, int steps, std::vector<Side> sides) {
    const auto program = Program::load(shop.compile(prologue + std::string(source), flags({"-shared"}), "program.so"));
    std::vector<Running> running;
    nest(program, sides, running, [&] {
      for (int number = 0; number < steps; ++number) {
        for (const Running& each : running) {
          enter(each.context);
          each.step(number);
        }
      }
      for (std::size_t i = 0; i < sides.size(); ++i) sides[i].said = running[i].text;
    });
    return sides;
  }

  /// What the program reports in a separate process, whose directory is `folder`.
  std::string alone(std::string_view source, int steps, const std::vector<std::string>& environment,
                    const std::string& folder = "/") {
    const std::string main = "\nint main(void) { for (int i = 0; i < " + std::to_string(steps) +
                             "; ++i) step(i); fputs(said, stdout); return 0; }\n";
    const std::string file = shop.compile(prologue + std::string(source) + main, flags({}), "alone");
    std::vector<std::string> words{"env", "-C", folder, "-i"};
    words.insert(words.end(), environment.begin(), environment.end());
    words.push_back(file);
    const Outcome outcome = run_command(words);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return outcome.output;
  }

  /// Checks both: two instances in the same surroundings report what the program alone reports.
  void expect_private(std::string_view source, int steps,
                      const std::vector<std::string>& environment = Side{}.environment) {
    const std::string expected = alone(source, steps, environment, std::filesystem::current_path().string());
    for (const Side& side : by_turns(source, steps, {Side{environment}, Side{environment}}))
      EXPECT_EQ(side.said, expected);
  }

  Workshop shop;

 private:
  struct Running {
    ProgramContext* context;
    void (*step)(int);
    const char* text;
  };

  static inline const std::string prologue = R"(
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char said[100000];
static int said_bytes;
__attribute__((format(printf, 1, 2), unused)) static void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  said_bytes += vsnprintf(said + said_bytes, sizeof said - said_bytes, format, arguments);
  va_end(arguments);
}
__attribute__((unused)) static void ended(int result, int error) { say("%d %d ", result, errno == error); }
)";

  static Workshop::Flags flags(Workshop::Flags more) {
    more.insert(more.end(), {"-D_GNU_SOURCE", "-O1", "-w", "-lm"});
    return more;
  }

  // As a task switch does.
  static void enter(ProgramContext* context) {
    ProgramContext* const before = current_program_context;
    if (before != context && ((before != nullptr && before->swaps) || (context != nullptr && context->swaps)))
      swap_thread_state(before, context);
    current_program_context = context;
  }

  // Instances end when their entry returns, so they are alive together only inside each other's entries.
  static void nest(const std::shared_ptr<const Program>& program, std::vector<Side>& sides,
                   std::vector<Running>& running, const std::function<void()>& body) {
    const std::size_t index = running.size();
    if (index == sides.size()) {
      body();
      return;
    }
    RecordingHost host("cell " + std::to_string(index) + " task 0", sides[index].input);
    ProgramContext* const outer = current_program_context;
    ProgramContext* own = nullptr;
    enter(nullptr);
    Instance::run(
        make_instance(program, host, static_cast<std::uint32_t>(index), {"./bin/program"},
                      environment_of(sides[index].environment)),
        [&](Instance& instance) {
          own = current_program_context;
          running.push_back(
              {own, function_of<void(int)>(instance, "step"), instance.address_of(instance.program().find("said"))});
          nest(program, sides, running, body);
          enter(own);
          return 0;
        },
        [](ProgramContext* context) { current_program_context = context; });
    sides[index].warnings = host.warnings;
    enter(outer);
  }
};

}  // namespace aplib::loader::test
