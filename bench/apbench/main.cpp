// SPDX-License-Identifier: MIT
// apbench: how fast APlib is on this computer. `apbench --help` lists the benchmarks; bench/compare compares them with
// other libraries.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "aplib/error.hpp"
#include "benches.hpp"
#include "farm/command.hpp"
#include "report.hpp"

namespace apbench {
namespace {

// The command line asks for something that does not exist.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Command {
  std::vector<std::string> benches;
  std::vector<std::string> bytes;
  Wishes wishes;
  Pace pace;
  double sample_ms = 6;
  bool json = false;
};

std::string help_footer() {
  std::string text = "Benchmarks (cases):\n";
  for (const Bench& bench : benches()) {
    const std::string cases =
        bench.case_words.empty() ? fmt::format("{}", fmt::join(bench.case_names, ", ")) : std::string(bench.case_words);
    text += fmt::format("  {:<10} {}\n  {:<10}   {}\n", bench.name, bench.help, "", cases);
  }
  text += fmt::format("  {:<10} all that are not marked otherwise\n", "all");
  text += "  apbench farm --help: the finance benchmark, tasks on a farm\n";
  text +=
      "A case with -posted: the receiver waits with its own buffer. Values are medians of the samples, low and high "
      "their\n"
      "10th and 90th percentiles. APLIB_* variables set the machine's options, except cells and threads.";
  return text;
}

std::vector<const Bench*> chosen_benches(const std::vector<std::string>& names) {
  std::vector<const Bench*> chosen;
  for (const Bench& bench : benches()) {
    const bool named = std::find(names.begin(), names.end(), bench.name) != names.end();
    const bool by_all = bench.in_all && std::find(names.begin(), names.end(), "all") != names.end();
    if (named || by_all) chosen.push_back(&bench);
  }
  for (const std::string& name : names) {
    if (name == "all") continue;
    const auto known = [&name](const Bench& bench) { return bench.name == name; };
    if (std::none_of(benches().begin(), benches().end(), known)) {
      std::vector<std::string_view> all;
      for (const Bench& bench : benches()) all.push_back(bench.name);
      throw UsageError(fmt::format("there is no benchmark '{}'; there are {} and all", name, fmt::join(all, ", ")));
    }
  }
  return chosen;
}

// Refuses what would be silently ignored.
void check(const Command& command, const std::vector<const Bench*>& chosen) {
  std::vector<std::string_view> names;
  for (const Bench* bench : chosen) {
    for (const std::string_view name : bench->case_names) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  for (const std::string& wanted : command.wishes.case_names) {
    if (std::find(names.begin(), names.end(), wanted) == names.end()) {
      throw UsageError(
          fmt::format("--case: the chosen benchmarks have no case '{}'; they have {}", wanted, fmt::join(names, ", ")));
    }
  }
  const auto takes_bytes = [](const Bench* bench) { return bench->takes_bytes; };
  if (!command.bytes.empty() && std::none_of(chosen.begin(), chosen.end(), takes_bytes)) {
    throw UsageError(
        "--bytes: the chosen benchmarks have no sizes; latency, bandwidth, put, get, hosts, module and floors have");
  }
}

void run(Command command) {
  const std::vector<const Bench*> chosen = chosen_benches(command.benches);
  check(command, chosen);
  for (const std::string& text : command.bytes) {
    try {
      command.wishes.bytes.push_back(parse_bytes(text));
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("--bytes: {}", error.what()));
    }
  }
  command.pace.sample_seconds = command.sample_ms / 1e3;

  Machines machines;
  Plan plan;
  for (const Bench* bench : chosen) bench->plan(plan, machines, command.wishes);
  std::vector<Result> results = measure(plan, command.pace);
  std::erase_if(results, [&](const Result& r) { return !command.wishes.wants(r.case_name); });
  if (command.json) {
    for (const Result& result : results) print(json_line(result) + '\n');
  } else {
    print(table(results));
  }
}

int run_main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "farm") return farm::run_command(argc - 1, argv + 1);
  Command command;
  CLI::App app("apbench: how fast APlib is on this machine", "apbench");
  app.footer(help_footer());
  app.add_option("bench", command.benches, "One or more benchmarks, or all")->required()->option_text("...");
  app.add_option("--bytes", command.bytes, "Sizes for latency, bandwidth, put, get, hosts, module and floors")
      ->delimiter(',')
      ->option_text("8,64k,1m");
  app.add_option("--case", command.wishes.case_names, "Only these cases")->delimiter(',')->option_text("NAME,...");
  app.add_option("--samples", command.pace.samples, "Samples of each figure, taken in turn")
      ->check(CLI::Range(1, 1000))
      ->option_text(fmt::format("N (default {})", command.pace.samples));
  app.add_option("--sample-ms", command.sample_ms, "Milliseconds of one sample; 0: as short as can be")
      ->check(CLI::Range(0.0, 10'000.0))
      ->option_text(fmt::format("MS (default {})", command.sample_ms));
  app.add_option("--idle-seconds", command.wishes.idle_seconds, "Seconds of one sample of idle")
      ->check(CLI::Range(0.01, 60.0))
      ->option_text(fmt::format("S (default {})", command.wishes.idle_seconds));
  app.add_option("--module", command.wishes.module, "The one that module measures (default: all that can be used)")
      ->check(CLI::IsMember(module_names()))
      ->option_text(fmt::format("{}", fmt::join(module_names(), "|")));
  app.add_option("--cluster", command.wishes.cluster, "Cluster file for hosts (default: two processes, a core each)")
      ->option_text("FILE");
  app.add_flag("--touch", command.wishes.touch, "The receiver reads a byte of each cache line it got");
  app.add_flag("--json", command.json, "One JSON object a line instead of a table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help
      print(app.help());
      return 0;
    }
    throw UsageError(error.what());
  }
  run(std::move(command));
  return 0;
}

}  // namespace
}  // namespace apbench

int main(int argc, char** argv) {
  const auto fail = [](const char* text, const char* remedy, aplib::ExitStatus status) {
    std::fflush(stdout);
    std::fputs(fmt::format("apbench: {}{}\n", text, remedy).c_str(), stderr);
    return static_cast<int>(status);
  };
  try {
    return apbench::run_main(argc, argv);
  } catch (const apbench::UsageError& error) {
    return fail(error.what(), "; see apbench --help", aplib::ExitStatus::usage);
  } catch (const aplib::Error& error) {
    return fail(error.what(), "",
                error.code() == aplib::Errc::bad_option ? aplib::ExitStatus::usage : aplib::ExitStatus::program_failed);
  } catch (const std::exception& error) {
    return fail(error.what(), "", aplib::ExitStatus::program_failed);
  }
}
