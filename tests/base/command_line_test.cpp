// SPDX-License-Identifier: MIT
#include "aplib/command_line.hpp"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "environment.hpp"

namespace aplib {
namespace {

struct Outcome {
  Options options;
  int points = 0;
  std::optional<int> status;
  std::string out, err;
};

/// How a program with an option --points and a default of 2x2 cells reads these arguments.
Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "heat");
  Outcome outcome;
  outcome.options.cells = {2, 2};
  CLI::App app("heat conduction");
  app.add_option("--points", outcome.points, "points in each direction");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  outcome.status = parse_command_line(app, outcome.options, static_cast<int>(arguments.size()), arguments.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(CommandLine, OptionsOfTheMachineStandBesideThoseOfTheProgram) {
  Environment environment;
  const Outcome outcome = run({"--points", "7", "--threads=3", "--cells", "4x2", "--poll-time", "0"});
  EXPECT_EQ(outcome.status, std::nullopt);
  EXPECT_EQ(outcome.points, 7);
  EXPECT_EQ(outcome.options.cells, (Grid{4, 2}));
  EXPECT_EQ(outcome.options.threads, 3U);
  EXPECT_EQ(outcome.options.get("poll-time"), "0");
  EXPECT_EQ(outcome.out + outcome.err, "");
}

TEST(CommandLine, WinsOverTheEnvironmentWhichWinsOverTheProgramsDefault) {
  Environment environment;
  environment.set("APLIB_THREADS", "5");
  environment.set("APLIB_CELLS", "3x3");
  const Outcome outcome = run({"--threads", "6"});
  EXPECT_EQ(outcome.options.threads, 6U);
  EXPECT_EQ(outcome.options.cells, (Grid{3, 3}));
  EXPECT_EQ(run({"--cells", "8", "--cells", "1x2"}).options.cells, (Grid{1, 2})) << "the last of two counts";
}

TEST(CommandLine, HelpShowsEveryRow) {
  Environment environment;
  environment.set("APLIB_CELLS", "nonsense");  // must not prevent --help
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.status, 0);
  for (const OptionInfo& info : option_table()) {
    SCOPED_TRACE(info.name);
    const std::size_t at = outcome.out.find("--" + std::string(info.name) + " " + std::string(info.values));
    ASSERT_NE(at, std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find(info.help, at), std::string::npos);
    EXPECT_NE(outcome.out.find(info.range, at), std::string::npos);
  }
  EXPECT_NE(outcome.out.find("2x2"), std::string::npos) << "the program's own default";
}

TEST(CommandLine, EveryBadValueIsAUsageErrorInWords) {
  Environment environment;
  for (const OptionInfo& info : option_table()) {
    const std::string option = "--" + std::string(info.name);
    const Outcome outcome = run({option.c_str(), "?"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.err.find(option + ": \"?\" is not a "), 0U) << outcome.err;
  }
  const std::string text =
      "--cells: \"0x4\" is not a grid: use NXxNY with at least 1 cell and at most 16384 in all, for example 4x2 or 8\n";
  EXPECT_EQ(run({"--cells", "0x4"}).err.substr(0, text.size()), text);
  EXPECT_EQ(run({"--cell", "2"}).status, 2);
}

TEST(CommandLine, ABadEnvironmentIsAUsageError) {
  Environment environment;
  environment.set("APLIB_BIND", "maybe");
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "APLIB_BIND: \"maybe\" is not a switch: use on or off\n");
}

}  // namespace
}  // namespace aplib
