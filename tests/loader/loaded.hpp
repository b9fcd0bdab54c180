// SPDX-License-Identifier: MIT
// A fixture for tests that compile a program and compare several instances of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compile.hpp"
#include "running.hpp"

namespace aplib::loader::test {

class Loaded : public ::testing::Test {
 protected:
  static constexpr std::uint32_t cells = 2;

  std::shared_ptr<const Program> load(std::string_view source, Workshop::Flags flags = {},
                                      std::string_view name = "program.so", Language language = Language::c) {
    flags.insert(flags.begin(), "-shared");
    return Program::load(shop.compile(source, flags, name, language));
  }
  std::shared_ptr<const Program> load_cpp(std::string_view source, Workshop::Flags flags = {},
                                          std::string_view name = "program.so") {
    return load(source, std::move(flags), name, Language::cpp);
  }

  /// Calls `int function(int)` with each of `values` in a separate instance. The instances are alive at the same time
  /// and are called in turn, twice. Returns the second results.
  static std::vector<int> in_turns(const std::shared_ptr<const Program>& program, std::string_view function,
                                   std::vector<int> values) {
    std::vector<int> results(values.size());
    nest(program, function, values, results, 0, [&](const std::vector<std::function<int(int)>>& calls) {
      for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < calls.size(); ++i) results[i] = calls[i](values[i]);
      }
    });
    return results;
  }

  Workshop shop;

 private:
  // Instances end when their entry returns, so they are alive at the same time only inside each other's entries.
  static void nest(const std::shared_ptr<const Program>& program, std::string_view function, std::vector<int>& values,
                   std::vector<int>& results, std::size_t index,
                   const std::function<void(const std::vector<std::function<int(int)>>&)>& body,
                   std::vector<std::function<int(int)>> calls = {}) {
    if (index == values.size()) {
      ProgramContext* const inner = current_program_context;
      body(calls);
      current_program_context = inner;
      return;
    }
    RecordingHost host("cell " + std::to_string(index) + " task 0");
    ProgramContext* const outer = current_program_context;
    Instance::run(
        make_instance(program, host, static_cast<std::uint32_t>(index)),
        [&](Instance& instance) {
          auto* const call = function_of<int(int)>(instance, function);
          ProgramContext* const own = current_program_context;
          calls.emplace_back([call, own](int value) {
            current_program_context = own;
            return call(value);
          });
          nest(program, function, values, results, index + 1, body, calls);
          return 0;
        },
        [outer](ProgramContext* context) { current_program_context = context != nullptr ? context : outer; });
  }
};

}  // namespace aplib::loader::test
