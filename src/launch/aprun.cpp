// SPDX-License-Identifier: MIT
// aprun: runs program files on the cells of a machine, on this computer or on the hosts of a cluster file.
// docs/aprun.md says what it does.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "comm/mixed/mixed_port.hpp"
#include "kernel/programs.hpp"
#include "launch/cluster_run.hpp"
#include "launch/command_line.hpp"
#include "launch/ctl/door.hpp"
#include "launch/node/node.hpp"
#include "launch/output.hpp"
#include "launch/program_path.hpp"
#include "launch/program_run.hpp"
#include "launch/report.hpp"
#include "launch/terminal.hpp"
#include "launch/this_host.hpp"
#include "launch/watchdog.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch {
namespace {

static_assert(Output::host == OutputSink::host);

/// Brings the output of programs to an Output, and remembers the first failure.
class Sink : public OutputSink {
 public:
  Sink(Output& output, std::string prefix, std::uint32_t cells)
      : output_(output), prefix_(std::move(prefix)), cells_(cells) {}

  void begin(bool with_host) override { output_.prepare(cells_, with_host); }
  void write(std::uint32_t cell, loader::Stream stream, std::span<const char> bytes) override {
    output_.write(cell, channel(stream), {bytes.data(), bytes.size()});
  }
  void flush(std::uint32_t cell, loader::Stream stream) override { output_.flush(cell, channel(stream)); }
  int input(std::uint32_t cell) override { return output_.input(cell); }
  void ended(std::uint32_t cell, int status) override {
    output_.end(cell);
    const std::lock_guard lock(mutex_);
    if (cell == host) {
      host_status_ = status;
    } else if (status != 0 && first_failure_ == 0) {
      first_failure_ = status;
    }
  }
  void warn(const std::string& line) override { tell_user(prefix_, line); }

  /// The host program's status, or if it is 0 that of the cell that failed first in time; 0: all went well. Call
  /// after the run.
  [[nodiscard]] int status() const { return host_status_ != 0 ? host_status_ : first_failure_; }

 private:
  static Channel channel(loader::Stream stream) {
    return stream == loader::Stream::err ? Channel::error : Channel::out;
  }

  Output& output_;
  const std::string prefix_;
  const std::uint32_t cells_;
  std::mutex mutex_;
  int host_status_ = 0;
  int first_failure_ = 0;
};

ProgramRun make_run(const CommandLine& line) {
  ProgramRun run;
  const char* path = std::getenv("PATH");
  run.file = line.direct ? line.program : find_program(line.program, path != nullptr ? path : "");
  complete_run(run, {.program_name = line.program_name,
                     .arguments = line.arguments,
                     .entry = line.entry,
                     .entry_arguments = line.entry_arguments,
                     .expand = line.expand,
                     .folder = line.folder,
                     .grid = line.machine.cells});
  if (run.folder_of && !line.dry_run) (void)run.folder_of(0);  // what is wrong shows before anything runs
  return run;
}

int exit_status(const Report& report, int programs, std::optional<int> watchdog) {
  if (watchdog) return *watchdog;
  return report.reason.empty() && programs != 0 ? programs : report.exit_status;
}

int run(const CommandLine& line, const std::string& prefix) {
  const ProgramRun what = make_run(line);
  if (line.dry_run) {
    return print(prefix, plan_text(summarize_program(line.machine, what), line.machine));
  }
  OutputPlan plan = line.output;
  const std::uint32_t cells = line.machine.cells.count();
  plan.sole = cells == 1;
  allow_many_files();
  Machine machine(line.machine);
  Output output(plan);
  Sink sink(output, prefix, cells);
  Watchdog watchdog(line.timeout,
                    {.stop = [&machine](int status, const std::string& text) { stop_machine(machine, status, text); },
                     .last_words = [&output] { output.end_all(); },
                     .grace = std::chrono::seconds(2)});
  std::optional<ctl::RegistryDoor> door(
      std::in_place, ctl::machine_verbs(what.file, line.machine.cells, [&machine](int status, const std::string& text) {
        stop_machine(machine, status, text);
      }));
  if (!door->problem().empty()) tell_user(prefix, "apctl cannot see this machine: " + door->problem());
  output.when_lost(
      [&](const std::string& problem) { watchdog.stop(static_cast<int>(ExitStatus::program_failed), problem); });
  const Report report = run_program(machine, what, sink);
  door.reset();
  watchdog.finish();
  output.end_all();

  int status = exit_status(report, sink.status(), watchdog.status());
  const bool alone = report.cell_status.size() == 1 && line.direct;
  const bool all_well = std::ranges::all_of(report.cell_status, [](int each) { return each == 0; });
  if (report.reason.empty() && !all_well && !alone) tell_user(prefix, end_summary(report.cell_status));
  if (const std::string problem = output.problem(); !problem.empty()) {
    if (report.reason != problem) tell_user(prefix, problem);
    if (status == 0) status = static_cast<int>(ExitStatus::program_failed);
  }
  if (programs_remain(
          machine)) {  // the end of a process ends its threads; ours must not meet the destructors of globals
    std::fflush(nullptr);
    ::_exit(status);
  }
  return status;
}

int list_modules(const Options& options) {
  const comm::PortSettings here{.address = "127.0.0.1",
                                .ports = options.ports,
                                .host = shared_memory_domain(),
                                .key = comm::JobKey::make(),
                                .secure = comm::secure_from(options.secure),
                                .streams = options.streams,
                                .provider = options.provider};
  const std::vector<comm::FoundModule> found = comm::find_modules(options.module_path);
  const int status = print("aprun", module_table(found, here));
  for (const std::string& name : comm::mixed::wished_modules(options.module))
    if (comm::kind_of(found, name) == nullptr) throw Error(Errc::bad_option, comm::unknown_module(found, name));
  return status;
}

}  // namespace
}  // namespace aplib::launch

int main(int argc, char** argv) {
  using namespace aplib::launch;
  open_standard_streams();
  // A closed pipe ends aprun as it ends every filter, also when its parent ignores the signal.
  std::signal(SIGPIPE, SIG_DFL);
  CommandLine line;
  if (const auto status = read_command_line(argc, argv, line)) return *status;
  const std::string prefix =
      line.direct ? std::filesystem::path(line.program_name).filename().string() : std::string("aprun");
  try {
    if (!line.node.empty())
      return node::run_node({wire::split_list(line.node), line.process, aplib::comm::secure_from(line.machine.secure),
                             line.machine.peer_timeout});
    if (line.list_modules) return list_modules(line.machine);
    return line.cluster_file.empty() ? run(line, prefix) : run_cluster(line);
  } catch (const aplib::Error& error) {
    tell_user(prefix, error.what());
    return static_cast<int>(aplib::ExitStatus::usage);
  } catch (const std::exception& error) {
    tell_user(prefix, error.what());
    return static_cast<int>(aplib::ExitStatus::program_failed);
  }
}
