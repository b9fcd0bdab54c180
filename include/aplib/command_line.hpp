// SPDX-License-Identifier: MIT
// The options of a machine on a program's own command line, for programs that use CLI11 (1.9.1 or newer). This header
// does not need CLI11 itself: it works with anything that has the interface of CLI::App.
//
//   #include <CLI/CLI.hpp>
//   #include <aplib/aplib.hpp>
//   #include <aplib/command_line.hpp>
//
//   int main(int argc, char** argv) {
//     CLI::App app("heat: heat conduction on a grid of cells");
//     int points = 300;
//     app.add_option("--points", points, "points in each direction");
//     aplib::Options options;  // what you assign here is the default of this program
//     if (auto status = aplib::parse_command_line(app, options, argc, argv)) return *status;
//     aplib::Machine machine(options);
//     return machine.run([&] { heat(points); }).exit_status;
//   }
//
//   $ APLIB_THREADS=2 ./heat --cells 4x2 --points 1000
//   $ ./heat --cells 0x4
//   --cells: "0x4" is not a grid: use NXxNY with at least 1 cell and at most 16384 in all, for example 4x2 or 8
//   Run with --help for more information.
#pragma once

#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include "aplib/error.hpp"
#include "aplib/options.hpp"
#include "aplib/task.hpp"

namespace aplib {

namespace detail {

/// CLI11's error type, taken from what App::exit() accepts.
template <class App, class ParseError, class... Rest>
ParseError parse_error_of(int (App::*exit)(const ParseError&, Rest...) const);

/// What is wrong with a value, or an empty text. Without its subject, because the command line adds its own.
inline std::string option_problem(const std::string& name, const std::string& value) {
  try {
    Options().set(name, value);
    return {};
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string subject = "option " + name + ": ";
    return text.compare(0, subject.size(), subject) == 0 ? text.substr(subject.size()) : text;
  }
}

}  // namespace detail

/// Adds every row of option_table() to `app` (a CLI::App), in a group of their own. --help shows form, default, help
/// and range. If an option is given twice, the last one counts. Values arrive in `options` when the app parses, so
/// `options` must outlive that. The defaults shown are the current values of `options`.
template <class App>
void add_options(App& app, Options& options) {
  for (const OptionInfo& info : option_table()) {
    const std::string name(info.name);
    const std::function<void(const std::string&)> set = [&options, name](const std::string& value) {
      options.set(name, value);
    };
    const std::function<std::string(const std::string&)> problem = [name](const std::string& value) {
      return detail::option_problem(name, value);
    };
    std::string help(info.help);
    if (!info.range.empty()) help += " Range: " + std::string(info.range) + ".";
    auto* option = app.template add_option_function<std::string>("--" + name, set, help);
    option->check(problem);
    option->type_name(std::string(info.values));
    option->default_str(options.get(name));
    option->take_last();
    option->group("Machine");
  }
}

/// Does everything: add_options(), the environment (APLIB_*), then the command line, which overrides it. `app` is a
/// CLI::App with the program's own options. In a loaded host program the environment is not read: pass
/// this_machine::options(), which already has it and aprun's options. Returns nothing if the program should go on.
/// Otherwise it has printed help (0) or what is wrong (ExitStatus::usage), and returns the status for main().
template <class App>
[[nodiscard]] std::optional<int> parse_command_line(App& app, Options& options, int argc, const char* const* argv) {
  using ParseError = decltype(detail::parse_error_of(&App::exit));
  add_options(app, options);
  std::string environment_problem;
  try {
    if (!this_task::inside()) options.set_from_environment();
  } catch (const Error& error) {
    environment_problem = error.what();  // kept, so that --help works in a wrong environment
  }
  try {
    app.parse(argc, argv);
  } catch (const ParseError& error) {
    if (app.exit(error) != 0) return static_cast<int>(ExitStatus::usage);
    if (std::cout.flush()) return 0;
    std::fputs("cannot write standard output\n", stderr);
    return static_cast<int>(ExitStatus::program_failed);
  }
  if (!environment_problem.empty()) {
    std::fprintf(stderr, "%s\n", environment_problem.c_str());
    return static_cast<int>(ExitStatus::usage);
  }
  return std::nullopt;
}

}  // namespace aplib
