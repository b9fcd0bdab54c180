// SPDX-License-Identifier: MIT
#include "command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "../report.hpp"
#include "aplib/error.hpp"
#include "job.hpp"
#include "model.hpp"
#include "scenarios.hpp"
#include "setup.hpp"

namespace apbench::farm {
namespace {

using aplib::farm::Where;

struct Command {
  std::string setup;
  std::vector<int> scenarios;
  std::vector<double> kb;
  std::vector<unsigned> cores;
  std::vector<std::uint64_t> tasks;
  double scale = 1;
  bool processes = false;
};

Where where(const Command& command) { return command.processes ? Where::processes : Where::threads; }

constexpr double gigabyte = 1e9;

void run_setup(const Command& command) {
  const Setup setup = read_setup(command.setup);
  Job job{.nodes = setup.nodes,
          .sleeps = setup.sleeps,
          .task_bytes = static_cast<std::uint64_t>(setup.task_kb * bytes_of_kb),
          .shared_bytes = static_cast<std::uint64_t>(setup.shared_kb * bytes_of_kb),
          .write_bytes = static_cast<std::uint64_t>(setup.write_kb * bytes_of_kb)};
  for (double& sleep : job.sleeps) sleep /= command.scale;
  const double needed = static_cast<double>(bytes_needed(job, where(command)));
  const double available = static_cast<double>(bytes_available());
  if (needed > available) {
    throw aplib::Error(aplib::Errc::exhausted,
                       fmt::format("{}: its data need {:.1f} GB at once, and this computer has {:.1f} GB; lower NNodes "
                                   "or the sizes{}",
                                   command.setup, needed / gigabyte, available / gigabyte,
                                   command.processes ? ", or leave out --processes" : ""));
  }
  const std::vector<TaskTimes> times = run(job, where(command));
  print(
      fmt::format("# NTasks={} NNodes={} InputFile={} TaskDataSize={} SharedDataSize={} WriteDataSize={} scale={} "
                  "workers={}\n",
                  setup.tasks, setup.nodes, setup.input_file, setup.task_kb, setup.shared_kb, setup.write_kb,
                  command.scale, command.processes ? "processes" : "threads"));
  print(columns(job, times));
}

template <class T>
bool wanted(const std::vector<T>& chosen, T value) {
  return chosen.empty() || std::find(chosen.begin(), chosen.end(), value) != chosen.end();
}

void run_scenarios(const Command& command) {
  std::vector<Observation> observations;
  for (const int number : command.scenarios) {
    print(table_head(number, command.scale));
    for (const Case& one : cases(number)) {
      if (!wanted(command.cores, one.cores) || !wanted(command.tasks, one.tasks) || !wanted(command.kb, one.kb()))
        continue;
      const Job job = job_of(one, command.scale);
      const double needed = static_cast<double>(bytes_needed(job, where(command)));
      if (needed > static_cast<double>(bytes_available())) {
        print(table_row(number, one, fmt::format("left out: it needs {:.1f} GB of memory", needed / gigabyte)));
        continue;
      }
      const Figures found = figures(job, run(job, where(command)));
      observations.push_back(observation(job, found));
      print(table_row(number, one, job, found));
    }
    print("\n");
  }
  if (observations.empty())
    throw aplib::Error(aplib::Errc::bad_option,
                       "no case was run: the chosen scenarios have none for --kb, --cores and --tasks that fits into "
                       "memory; see apbench farm --help");
  print(describe(fit(observations), observations));
}

constexpr const char* footer =
    "Scenarios (of the paper's table 5.2):\n"
    "  1  common data to many cores   2  length of tasks by data   3  start-up\n"
    "  4  task data                   5  output                    6  fixed work in n pieces\n"
    "A setup gives a line for each task: tid, sleep time, submit, calc-in, calc-out, retrieve (seconds since the job\n"
    "began) and host name. Scenarios give for each case: the total, with the making of the farm; the same from the\n"
    "first submission on (standing), and what of that is beyond the sleeping; when the first worker and all had\n"
    "begun; the rate of all data in the time beyond; what the paper measured. At the end stands the model of the\n"
    "paper's section 5.5.7.";

}  // namespace

int run_command(int argc, char** argv) {
  Command command;
  CLI::App app("apbench farm: the finance benchmark on a farm of this computer", "apbench farm");
  app.footer(footer);
  auto* setup = app.add_option("--setup", command.setup, "The benchmark's XML file")->option_text("FILE");
  auto* scenarios = app.add_option("--scenario", command.scenarios, "The paper's cases instead of a file")
                        ->delimiter(',')
                        ->check(CLI::Range(1, scenario_count))
                        ->option_text("1,2,...")
                        ->excludes(setup);
  app.add_option("--scale", command.scale, "Divide the sleep times by this")
      ->check(CLI::Range(1e-3, 1e9))
      ->option_text("F (default 1)");
  app.add_option("--kb", command.kb, "Only these sizes of the scenarios: 0, 10, 100, 1000, 10000, 100000")
      ->delimiter(',')
      ->option_text("KB,...")
      ->needs(scenarios);
  app.add_option("--cores", command.cores, "Only these numbers of cores: 1, 10, 50, 100, 200, 400")
      ->delimiter(',')
      ->option_text("N,...")
      ->needs(scenarios);
  app.add_option("--tasks", command.tasks, "Only these numbers of tasks")
      ->delimiter(',')
      ->option_text("N,...")
      ->needs(scenarios);
  app.add_flag("--processes", command.processes, "Workers are processes, and data go there and back; default: threads");
  try {
    app.parse(argc, argv);
    if (command.setup.empty() && command.scenarios.empty()) throw CLI::RequiredError("--setup or --scenario");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help
      print(app.help());
      return 0;
    }
    throw aplib::Error(aplib::Errc::bad_option, fmt::format("{}; see apbench farm --help", error.what()));
  }
  if (command.setup.empty()) {
    run_scenarios(command);
  } else {
    run_setup(command);
  }
  return 0;
}

}  // namespace apbench::farm
