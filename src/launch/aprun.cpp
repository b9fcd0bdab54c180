// SPDX-License-Identifier: MIT
// aprun: runs program files on the cells of a machine, on this computer or on the hosts of a cluster file.
// docs/aprun.md says what it does. Under the name mpiexec or mpirun it takes their options: docs/mpi.md.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "aplib/version.hpp"
#include "base/os/own_folder.hpp"
#include "base/sanitizer.hpp"
#include "comm/mixed/mixed_port.hpp"
#include "kernel/process.hpp"
#include "kernel/programs.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/command_line.hpp"
#include "launch/coordinator/coordinator.hpp"
#include "launch/ctl/door.hpp"
#include "launch/files/manifest.hpp"
#include "launch/mpiexec.hpp"
#include "launch/net/net.hpp"
#include "launch/node/node.hpp"
#include "launch/output.hpp"
#include "launch/pool/file_tree.hpp"
#include "launch/pool/pool.hpp"
#include "launch/program_path.hpp"
#include "launch/program_run.hpp"
#include "launch/report.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/pmix.hpp"
#include "launch/terminal.hpp"
#include "launch/this_host.hpp"
#include "launch/thread_locals.h"
#include "launch/watchdog.hpp"
#include "launch/wire/endpoint.hpp"
#include "launch/wire/files.hpp"

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
    if (cell == host && stream == loader::Stream::err) host_spoke_ = true;
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
  void failed(int status) override { when_failed(status); }

  /// What failed() does. Set before the run.
  std::function<void(int status)> when_failed = [](int) {};

  /// The host program's status, or if that is 0, the status of the cell that failed first. 0 means that all went well.
  /// Call after the run.
  [[nodiscard]] int status() const { return host_status_ != 0 ? host_status_ : first_failure_; }
  [[nodiscard]] int host_status() const { return host_status_; }
  /// Whether the host program has written to standard error.
  [[nodiscard]] bool host_spoke() const { return host_spoke_; }

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
  std::atomic<bool> host_spoke_{false};
};

// ---- what a command line runs ----

/// What the command line asks for, without the grid. `files` gets the files of its programs, each once.
RunText run_text(const CommandLine& line, std::vector<std::string>& files) {
  const char* const path = std::getenv("PATH");
  const auto place = [&](const std::string& name) {
    std::string file = line.direct ? name : find_program(name, path != nullptr ? path : "");
    const auto known = std::ranges::find(files, file);
    const auto at = static_cast<std::uint32_t>(known - files.begin());
    if (known == files.end()) files.push_back(std::move(file));
    return at;
  };
  RunText text;
  text.programs.push_back({.file = place(line.program),
                           .name = line.program_name,
                           .arguments = line.arguments,
                           .folder = line.folder,
                           .variables = line.variables,
                           .is_process = line.processes});
  for (wire::ProgramText other : line.others) {
    other.file = place(other.name);
    text.programs.push_back(std::move(other));
  }
  text.entry = line.entry;
  text.entry_arguments = line.entry_arguments;
  text.expand = line.expand;
  return text;
}

/// A word of the command line, or a word in it, is a program that calls MPI: "x" in env A=1 ./x, bash -c "A=1 ./x".
bool names_mpi_program(const std::vector<std::string>& arguments, const std::string& path) {
  return std::ranges::any_of(arguments, [&path](const std::string& argument) {
    constexpr std::string_view ends = " \t\n;&|()<>\"'`=";
    for (std::size_t at = 0; (at = argument.find_first_not_of(ends, at)) != argument.npos;) {
      const std::size_t end = std::min(argument.find_first_of(ends, at), argument.size());
      const std::string word = argument.substr(at, end - at);
      at = end;
      try {
        const std::string file = find_program(word, path);
        if (::access(file.c_str(), X_OK) == 0 && calls_mpi(file)) return true;
      } catch (const Error&) {  // no program
      }
    }
    return false;
  });
}

/// Programs that no cell can run become processes, which the user is told. True: there are some. Programs of mpiexec
/// are there to call MPI, so those that do not, and can start others, do that. Those that call it and fork would be
/// refused in the middle.
bool choose_processes(CommandLine& line) {
  const auto choose = [&line](const std::string& name, const std::vector<std::string>& arguments, bool& is_process) {
    if (line.direct) return;
    const char* const variable = std::getenv("PATH");
    const std::string path = variable != nullptr ? variable : "";
    const std::string file = find_program(name, path);
    std::string why;
    if (!is_process) {
      if (::access(file.c_str(), X_OK) != 0) return;
      why = why_not_loaded(file);
      if (why.empty() && is_interpreter(file)) why = "is an interpreter";
      if (why.empty() && starts_others(file)) {
        if (calls_mpi(file)) {
          if (line.entry.empty()) why = "forks or executes others";
        } else if (line.is_mpiexec || names_mpi_program(arguments, path)) {
          why = "starts other programs";
        }
      }
      if (why.empty()) return;
    }
    if (!is_process) tell_user("aprun", fmt::format("{} {}: each of its cells is a process (--processes)", name, why));
    if (const std::string problem = why_no_process(file); !problem.empty())
      throw Error(Errc::bad_option, fmt::format("{} {}, which no process can run", file, problem));
    is_process = true;
  };
  choose(line.program, line.arguments, line.processes);
  bool any = line.processes;
  for (wire::ProgramText& other : line.others) {
    choose(other.name, other.arguments, other.is_process);
    any = any || other.is_process;
  }
  if (any && !line.entry.empty())
    throw Error(Errc::bad_option,
                "--entry is for programs that cells load, and not for processes: leave one of them out");
  return any;
}

// ---- a machine in this process ----

/// A wrong folder shows before anything runs.
void try_folder(const ProgramRun& run) {
  if (run.folder_of) static_cast<void>(run.folder_of(run.first_cell));
}

int exit_status(const Report& report, int programs, std::optional<int> watchdog) {
  if (watchdog) return *watchdog;
  return report.reason.empty() && programs != 0 ? programs : report.exit_status;
}

/// Refuses unknown modules, although one process needs none.
void check_modules(const Options& options) {
  for (const std::string& name : comm::mixed::wished_modules(options.module)) {
    const std::vector<comm::FoundModule> found = comm::find_modules(options.module_path, name);
    if (comm::kind_of(found, name) == nullptr) throw Error(Errc::bad_option, comm::unknown_module(found, name));
  }
}

/// Without a cluster file, all cells are where the files are.
void refuse_files(const CommandLine& line) {
  if (line.sent.empty() && line.fetched.empty()) return;
  throw Error(Errc::bad_option,
              "--send and --fetch are for hosts of a cluster file (-f): on this computer the files are there already; "
              "leave them out");
}

int run(const CommandLine& line, const std::string& prefix) {
  check_modules(line.machine);
  std::vector<std::string> files;
  RunText text = run_text(line, files);
  text.grid = line.machine.cells;
  text.host_cells.resize(text.grid.count());
  std::iota(text.host_cells.begin(), text.host_cells.end(), 0U);
  ProgramRun what = make_run(text, files);
  if (line.others.empty()) {  // then shared libraries may see them, too
    for (const wire::NamedValue& variable : line.variables) ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
  }
  what.has_openmp_threads = has_openmp_threads();
  if (line.dry_run) {
    const std::string plan = plan_text(summarize_program(line.machine, what), line.machine);
    for (const ProgramRun& other : what.others) static_cast<void>(summarize_program(line.machine, other));
    return print(prefix, plan + other_programs_text(text, line.machine.cells.count()));
  }
  try_folder(what);
  for (const ProgramRun& other : what.others) try_folder(other);
  OutputPlan plan = line.output;
  const std::uint32_t cells = line.machine.cells.count();
  plan.sole = cells == 1;
  share_cpus(cells);
  allow_many_files();
  Machine machine(line.machine);
  Output output(plan);
  Sink sink(output, prefix, cells);
  const auto pass_on = [&](int signal, pid_t from) { return pass_signal(machine, signal, from).value_or(false); };
  Watchdog watchdog(line.timeout,
                    {.stop = [&machine](int status, const std::string& text) { stop_machine(machine, status, text); },
                     .last_words = [&output] { output.end_all(); },
                     .pass_on = pass_on,
                     .grace = std::chrono::seconds(2)});
  sink.when_failed = [&watchdog](int status) { watchdog.expect_end(status); };
  std::optional<ctl::RegistryDoor> door(
      std::in_place, ctl::machine_verbs(
                         what.file, line.machine.cells, [&machine] { return describe_waits(machine); },
                         [&machine](int status, const std::string& text) { stop_machine(machine, status, text); }));
  if (!door->problem().empty()) tell_user(prefix, "apctl cannot see this machine: " + door->problem());
  output.when_lost(
      [&](const std::string& problem) { watchdog.stop(static_cast<int>(ExitStatus::program_failed), problem); });
  const Report report = run_program(machine, what, sink);
  const bool all_well = std::ranges::all_of(report.cell_status, [](int each) { return each == 0; });
  const int host_status = sink.host_status();
  const std::string summary = all_well && host_status == 0 ? "" : end_summary(report.cell_status, host_status);
  door->set_end(exit_status(report, sink.status(), watchdog.status()), report.reason.empty() ? summary : report.reason);
  door.reset();
  watchdog.finish();
  output.end_all();

  int status = exit_status(report, sink.status(), watchdog.status());
  const bool alone = report.cell_status.size() == 1 && line.direct;
  const bool host_told = line.direct && sink.host_spoke();  // a program that is executed itself tells its own reasons
  if (report.reason.empty() && ((!all_well && !alone) || (host_status != 0 && !host_told))) tell_user(prefix, summary);
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

// ---- a machine on the hosts of a cluster file ----

/// This process's place in the job of another launcher. Process 0 is the launcher of the machine, and starts its
/// node beside itself; the others are nodes.
class PmixRun {
 public:
  /// Nothing: no other launcher has started this process, or it has started this one alone. Throws Error(failed).
  [[nodiscard]] static std::optional<PmixRun> find();

  [[nodiscard]] bool is_launcher() const { return pmix_->rank() == 0; }
  /// Waits for the launcher's word and becomes a node. Returns the exit status. Throws Error(failed).
  int run_node();

  /// Makes the cluster's hosts those of the job, or checks that they are. Throws Error(bad_option).
  void take_hosts(cluster::Cluster& cluster) const;
  /// Tells the nodes where to call. Waits until all of them have heard it.
  void invite(const coordinator::Coordinator::Invitation& invitation, const Options& options);
  /// Tells the nodes that there will be no machine, if they were not invited yet.
  void call_off() noexcept;

 private:
  explicit PmixRun(std::unique_ptr<start::Pmix> pmix) : pmix_(std::move(pmix)) {}

  std::unique_ptr<start::Pmix> pmix_;
  bool told_ = false;
};

// What the launcher publishes by PMIx.
constexpr const char* endpoints_name = "aplib.endpoints";
constexpr const char* key_name = "aplib.key";
constexpr const char* secure_name = "aplib.secure";
constexpr const char* timeout_name = "aplib.peer-timeout";

std::optional<PmixRun> PmixRun::find() {
  if (!start::Pmix::launched_us()) return std::nullopt;
  auto pmix = std::make_unique<start::Pmix>();
  if (pmix->size() == 1) return std::nullopt;
  return PmixRun(std::move(pmix));
}

int PmixRun::run_node() {
  pmix_->fence();
  const auto endpoints = pmix_->get(0, endpoints_name);
  if (!endpoints || endpoints->empty()) return 0;  // the launcher has said why there is no machine
  const auto key = comm::JobKey::from_hex(pmix_->get(0, key_name).value_or(std::string()));
  if (!key) throw Error(Errc::failed, "no key came from process 0: are all installations of APlib the same?");
  Options options;
  options.set("secure", pmix_->get(0, secure_name).value_or("auth"));
  options.set("peer-timeout", pmix_->get(0, timeout_name).value_or("10s"));
  return node::run_node({.endpoints = wire::split_list(*endpoints),
                         .process = pmix_->rank(),
                         .secure = comm::secure_from(options.secure),
                         .timeout = options.peer_timeout},
                        *key);
}

void PmixRun::take_hosts(cluster::Cluster& cluster) const {
  const std::uint32_t size = pmix_->size();
  if (cluster.hosts.empty() || (cluster.hosts.size() == 1 && cluster.hosts.front().line == 0)) {
    cluster.hosts.clear();
    std::map<std::string, int> seen;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      cluster::ClusterHost host = cluster.defaults;
      host.name = pmix_->host(rank);
      if (host.name.empty()) host.name = "host";
      // Processes on one computer need different names.
      if (const int count = ++seen[host.name]; count > 1) host.name += fmt::format("-{}", count);
      cluster.hosts.push_back(std::move(host));
    }
  }
  if (cluster.hosts.size() != size) {
    throw Error(Errc::bad_option,
                fmt::format("{}: it names {} hosts, and another launcher has started {} processes: use "
                            "mpirun -np {}, or leave [[host]] out",
                            cluster.file, cluster.hosts.size(), size, cluster.hosts.size()));
  }
  const auto other = std::ranges::find_if(
      cluster.hosts, [](const cluster::ClusterHost& host) { return host.launch != cluster::LaunchKind::pmix; });
  if (other != cluster.hosts.end()) {
    throw Error(Errc::bad_option,
                fmt::format("{}: host {}: another launcher (mpirun, srun) has started {} processes of "
                            "aprun: write launch = \"pmix\", or start aprun once",
                            cluster.file, other->name, size));
  }
  cluster.hosts.front().launch = cluster::LaunchKind::local;  // beside the launcher
}

void PmixRun::invite(const coordinator::Coordinator::Invitation& invitation, const Options& options) {
  pmix_->put(endpoints_name, fmt::format("{}", fmt::join(invitation.endpoints, ",")));
  pmix_->put(key_name, invitation.key);
  pmix_->put(secure_name, options.secure);
  pmix_->put(timeout_name, options.get("peer-timeout"));
  told_ = true;
  pmix_->fence();
}

void PmixRun::call_off() noexcept {
  if (std::exchange(told_, true)) return;
  try {
    pmix_->put(endpoints_name, "");
    pmix_->fence();
  } catch (const std::exception&) {  // their launcher ends them with us
  }
}

/// The coordinator ends a machine by force after a second and a half, and then needs some seconds to clean up on hosts
/// that do not answer. The watchdog gives up the coordinator only after that.
constexpr std::chrono::seconds watchdog_grace{10};

void say(const std::string& line) { tell_user("aprun", line); }

/// Options of the command line win over those of the file.
void apply_command_line(const CommandLine& line, cluster::Cluster& cluster) {
  for (const auto& [name, value] : line.given) {
    if (name == "cells") {
      Options options;
      options.set(name, value);
      cluster.grid = options.cells;
      cluster.grid_place = "option --cells";
      continue;
    }
    cluster.options.set(name, value);
    if (name == "threads")
      for (cluster::ClusterHost& host : cluster.hosts) host.threads = value;
  }
}

/// Adds the hosts of the surrounding allocation if the file names none.
void add_allocated_hosts(cluster::Cluster& cluster) {
  if (!cluster.hosts.empty()) return;
  for (const std::string& name : start::slurm_hosts()) {
    cluster.hosts.push_back(cluster.defaults);
    cluster.hosts.back().name = name;
  }
  if (cluster.hosts.empty()) {
    throw Error(Errc::bad_option,
                fmt::format("{}: it names no host, and this is no allocation of Slurm's that could: add [[host]], or "
                            "start aprun by sbatch or salloc",
                            cluster.file));
  }
}

cluster::Cluster read_cluster(std::string_view who, const std::string& file) {
  const WaitNote note(std::string(who), wait_text(file));
  return cluster::read_cluster(file);
}

std::string own_path() {
  const std::string path = os::own_program();
  return path.empty() ? "aprun" : path;
}

/// Gives each cell of a program that is not loaded a process of its own.
void part_by_programs(const CommandLine& line, cluster::Cluster& cluster) {
  const auto is_process = [&line](std::uint32_t cell) {
    bool is = line.processes;
    for (const wire::ProgramText& other : line.others) {
      if (other.first_cell <= cell) is = other.is_process;
    }
    return is;
  };
  cluster::part_processes(cluster, is_process);
}

/// Where a file goes in the working folder of a host, if nobody says so: a path below the folder here keeps it.
std::string target_of(const std::string& source) {
  const std::string place = files::own_place(source);
  return files::is_safe_path(place) ? place : files::own_place(std::filesystem::absolute(source));  // of "." and ".."
}

std::shared_ptr<const files::Manifest> manifest_of(const std::vector<files::Source>& sources) {
  auto manifest = std::make_shared<files::Manifest>(files::gather(sources, describe_this_host().host_id));
  if (!manifest->problems.empty())
    throw Error(Errc::bad_option, fmt::format("{}", fmt::join(manifest->problems, "\n")));
  return manifest;
}

/// Finds the files that go along, and checks that they can be read before anything starts.
void add_files(const CommandLine& line, const cluster::Cluster& cluster, coordinator::Job& job) {
  const auto hosts_of = [&cluster](const cluster::ClusterFile& file) {
    std::vector<bool> hosts;
    for (const cluster::ClusterHost& host : cluster.hosts) hosts.push_back(file.is_for(host.name));
    if (std::ranges::count(hosts, true) == 0) {  // of an allocation, whose hosts the file does not name
      throw Error(Errc::bad_option, fmt::format("{}: [[file]] {}: none of the hosts is one of {}: correct its hosts",
                                                cluster.file, files::shown(file.source), fmt::join(file.hosts, ", ")));
    }
    return hosts;
  };
  const auto fetch = [&](const cluster::ClusterFile& file) {
    job.fetched.push_back({file.source, file.target.empty() ? "." : file.target, hosts_of(file)});
  };
  for (const cluster::ClusterFile& file : cluster.files) {
    if (file.fetch) {
      fetch(file);
      continue;
    }
    const std::string target = file.target.empty() ? target_of(file.source) : file.target;
    job.sent.push_back({manifest_of({{file.source, target}}), file.replace, hosts_of(file)});
  }
  std::vector<files::Source> sources;
  for (const std::string& text : line.sent) {
    const auto [path, target] = split_place(text);
    sources.push_back({path, target.empty() ? target_of(path) : target});
  }
  if (!sources.empty()) job.sent.push_back({manifest_of(sources), line.replace, hosts_of({})});
  for (const std::string& text : line.fetched) {
    const auto [pattern, folder] = split_place(text);
    fetch({.source = pattern, .target = folder});
  }
}

/// The program's name as the command line has it, or the file.
coordinator::Job make_job(CommandLine line, cluster::Cluster cluster) {
  coordinator::Job job;
  if (line.program.empty()) {
    line.program = cluster.host_program.empty() ? cluster.program : cluster.host_program;
    line.program_name = line.program;
    line.arguments = cluster.args;
    if (line.program.empty()) {
      throw Error(Errc::bad_option, fmt::format("no program is given: name one behind the options, or as program = "
                                                "\"...\" in [machine] of {}",
                                                cluster.file));
    }
  }
  if (choose_processes(line)) part_by_programs(line, cluster);
  std::vector<std::string> files;
  job.text = run_text(line, files);
  const ProgramRun run = make_run(job.text, files);
  Options options = cluster.options;
  options.cells = {1, 1};
  std::vector<std::string> libraries;
  const auto look = [&](const ProgramRun& program) {
    const ProgramSummary summary = summarize_program(options, program);
    for (const ProgramSummary::File& library : summary.libraries) {
      if (library.separate && std::ranges::find(libraries, library.path) == libraries.end())
        libraries.push_back(library.path);
    }
    return summary;
  };
  std::vector<bool> loaded(files.size());
  for (std::size_t i = 0; i < job.text.programs.size(); ++i) {
    const wire::ProgramText& program = job.text.programs[i];
    if (program.is_process) continue;
    const ProgramSummary summary = look(i == 0 ? run : run.others[i - 1]);
    files[program.file] = summary.path;
    loaded[program.file] = true;
    job.with_host = job.with_host || (i == 0 && summary.is_host);
  }
  if (job.with_host && std::ranges::any_of(cluster.hosts, &cluster::ClusterHost::process))
    throw Error(Errc::bad_option, "the cells of a host program cannot be processes: leave --processes out");
  for (std::size_t i = 0; i < files.size(); ++i) {
    job.files.push_back(loaded[i] ? wire::describe_files({files[i]}).front()
                                  : wire::FileRef{std::filesystem::absolute(files[i]), {}});
  }
  std::ranges::move(wire::describe_files(libraries), std::back_inserter(job.files));
  job.input_for_all = !line.output.input.empty();
  job.aprun = own_path();
  job.dry_run = line.dry_run;
  job.reach = coordinator::find_reach(cluster.hosts);
  add_files(line, cluster, job);
  job.cluster = std::move(cluster);
  return job;
}

std::string plan_of(const cluster::Cluster& cluster, const coordinator::Job& job,
                    const coordinator::JobResult& result) {
  ClusterPlan plan;
  plan.file = cluster.file;
  plan.program = job.files.front().path;
  plan.build_id = job.files.front().identity.build_id;
  plan.host_program = job.with_host ? plan.program : std::string();
  plan.args = job.text.programs.front().arguments;
  plan.grid = result.shares.grid;
  plan.cells = result.planned_cells;
  plan.grid_auto = !cluster.grid.has_value();
  plan.efficiency = result.shares.efficiency;
  plan.ports = cluster.options.ports;
  plan.secure = cluster.options.secure;
  plan.hosts = result.plan;
  return cluster_plan_text(plan) + other_programs_text(job.text, plan.grid.count());
}

/// The hosts of a pool. Where fewer than all are enough, those that do not stand now are left out, which the user is
/// told. Throws Error.
cluster::Cluster hosts_of_pool(const pool::Pool& pool) {
  cluster::Cluster cluster = pool.standing_cluster();
  const std::size_t all = cluster.hosts.size();
  if (cluster.need > all) {
    throw Error(Errc::bad_option, fmt::format("{}: [machine]: need = {}: pool {} has only {} hosts; write at most that",
                                              cluster.file, cluster.need, pool.name(), all));
  }
  if (cluster.need == 0 || cluster.need == all) return cluster;
  const auto answers = pool::facts_of(pool.ways(), cluster.options.peer_timeout);
  std::vector<std::string> left_out;
  std::vector<bool> stands(all, true);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::string problem = pool::problem_of(answers[i]);
    if (problem.empty()) continue;
    for (const std::size_t member : pool.hosts()[i].members) {
      stands[member] = false;
      left_out.push_back(fmt::format("{}: {}", cluster.hosts[member].name, problem));
    }
  }
  if (left_out.empty()) return cluster;
  const std::size_t stand = all - left_out.size();
  if (stand < cluster.need) {
    throw Error(Errc::failed, fmt::format("{} of {} hosts stand, and {} are needed ({}); apctl up {} repairs the pool",
                                          stand, all, cluster.need, fmt::join(left_out, "; "), pool.name()));
  }
  say(fmt::format("runs on {} of {} hosts, without {}", stand, all, fmt::join(left_out, "; ")));
  std::size_t at = 0;
  std::erase_if(cluster.hosts, [&](const cluster::ClusterHost&) { return !stands[at++]; });
  return cluster;
}

/// What the nodes of a pool will say of their hosts, as far as keepers have said it before: the start does not wait for
/// it.
std::vector<std::optional<wire::Hello>> foretold_by(const pool::Pool& pool, const cluster::Cluster& cluster) {
  std::vector<std::optional<wire::Hello>> foretold(cluster.hosts.size());
  const std::vector<pool::Pool::Known> known = pool.known();
  for (std::size_t i = 0; i < known.size(); ++i) {
    const pool::HostFacts& facts = known[i].facts;
    if (known[i].at == 0 || facts.version != version) continue;
    for (std::size_t process = 0; process < foretold.size(); ++process) {
      if (cluster.hosts[process].keeper != pool.way(i).socket) continue;
      foretold[process] = wire::Hello{.version = facts.version,
                                      .process = static_cast<std::uint32_t>(process),
                                      .host = facts.host,
                                      .host_id = facts.host_id,
                                      .local = wire::is_numeric_address(facts.local) ? facts.local : std::string(),
                                      .cpus = facts.cpus};
    }
  }
  return foretold;
}

/// Large files go from host to host (pool/file_tree.hpp) before the nodes start. Whoever does not get them so, or is
/// alone, gets them with its node, which also says why not.
void pass_files_on(const pool::Pool& pool, coordinator::Job& job) {
  constexpr std::uint64_t bytes_min = std::uint64_t{4} << 20;  // fewer come sooner with the nodes
  const std::vector<cluster::ClusterHost>& processes = job.cluster.hosts;
  const std::vector<pool::KeeperAddress> ways = pool.ways();
  for (coordinator::SentFiles& sent : job.sent) {
    std::uint64_t bytes = 0;
    for (const files::Entry& entry : sent.manifest->entries) bytes += entry.stored;
    std::vector<std::size_t> wanting;
    for (std::size_t host = 0; bytes >= bytes_min && host < ways.size(); ++host) {
      for (std::size_t i = 0; i < processes.size(); ++i) {
        if (!sent.hosts[i] || processes[i].keeper != ways[host].socket) continue;
        wanting.push_back(host);
        break;
      }
    }
    const std::vector<std::size_t> passing = pool::hosts_with_neighbours(pool, wanting);
    if (passing.empty()) continue;
    std::mutex mutex;
    const auto end = [&](std::size_t host, bool good) {
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; good && i < processes.size(); ++i) {
        const bool is_there = processes[i].keeper == ways[host].socket;
        if (is_there && processes[i].folder == pool.hosts()[host].host.folder) sent.hosts[i] = false;
      }
    };
    static_cast<void>(pool::send_files(pool, passing,
                                       {.manifest = sent.manifest,
                                        .folder = ".",
                                        .existing = sent.replace ? files::Existing::replace : files::Existing::refuse,
                                        .below = "",
                                        .complain = [](const std::string&) {},
                                        .over = end}));
  }
}

int run_cluster_with(const CommandLine& line, PmixRun* pmix) {
  std::optional<pool::Pool> pool;
  if (!line.pool.empty()) pool = pool::Pool::reach(line.pool);
  cluster::Cluster cluster = pool                        ? hosts_of_pool(*pool)
                             : line.cluster_text.empty() ? read_cluster("aprun", line.cluster_file)
                                                         : cluster::parse_cluster(line.cluster_text, line.cluster_file,
                                                                                  Options::from_environment());
  if (pmix != nullptr) pmix->take_hosts(cluster);
  add_allocated_hosts(cluster);
  apply_command_line(line, cluster);
  coordinator::Job job = make_job(line, cluster);
  if (pool) job.foretold = foretold_by(*pool, job.cluster);
  if (pool && !job.dry_run) pass_files_on(*pool, job);
  OutputPlan plan = line.output;
  plan.tags = cluster.options.tag_output;
  plan.sole = cluster.grid && cluster.grid->count() == 1;
  allow_many_files();
  Output output(plan);
  coordinator::Coordinator coordinator(job, output, start::make_starter(), {.say = say});
  if (pmix != nullptr) {
    coordinator.listening = [&](const coordinator::Coordinator::Invitation& invitation) {
      pmix->invite(invitation, cluster.options);
    };
  }
  output.when_lost(
      [&](const std::string& problem) { coordinator.stop(static_cast<int>(ExitStatus::program_failed), problem); });
  Watchdog watchdog(line.timeout, {.stop = [&](int status, const std::string& text) { coordinator.stop(status, text); },
                                   .last_words = [&] { output.end_all(); },
                                   .pass_on = [&](int signal, pid_t) { return coordinator.pass_signal(signal); },
                                   .grace = watchdog_grace});
  coordinator.refused_signal = [&](int signal) { watchdog.refuse(signal); };
  std::optional<ctl::RegistryDoor> door(std::in_place, ctl::machine_verbs(coordinator, cluster.options));
  if (!door->problem().empty()) say("apctl cannot see this machine: " + door->problem());
  const coordinator::JobResult result = coordinator.run();
  const bool all_well = std::ranges::all_of(result.cell_status, [](int each) { return each == 0; });
  const std::string summary =
      all_well && result.host_status == 0 ? "" : end_summary(result.cell_status, result.host_status);
  door->set_end(watchdog.status().value_or(result.status), result.reason.empty() ? summary : result.reason);
  door.reset();
  watchdog.finish();
  output.end_all();
  int status = watchdog.status().value_or(result.status);
  if (!result.plan.empty()) {
    const int written = print("aprun", plan_of(cluster, job, result));
    if (status == 0) status = written;
  }
  if (result.reason.empty() && !summary.empty()) say(summary);
  if (const std::string problem = output.problem(); !problem.empty()) {
    if (result.reason != problem) say(problem);
    if (status == 0) status = static_cast<int>(ExitStatus::program_failed);
  }
  return status;
}

/// On this computer, with processes among the cells.
int run_processes(CommandLine line) {
  const Grid grid = line.machine.cells;
  line.cluster_text = fmt::format(
      "[machine]\ngrid = \"{}x{}\"\n[[host]]\nname = \"localhost\"\nlaunch = \"local\"\n"
      "cells = {}\n",
      grid.nx, grid.ny, grid.count());
  line.cluster_file = "this computer";
  return run_cluster_with(line, nullptr);
}

/// A program made by apcc that is such a process: it loads itself for its one cell.
int run_member(const CommandLine& line, const std::string& prefix, const char* invitation) {
  std::vector<std::string> files;
  const RunText text = run_text(line, files);
  const ProgramRun run = make_run(text, files);
  std::unique_ptr<Membership> membership(aplib_join(invitation, false));
  Options options = membership->options();
  options.threads = 1;
  Machine machine(options);
  Output output({.sole = true});
  Sink sink(output, prefix, options.cells.count());
  membership->begin(machine);
  Report report;
  try {
    report = run_process(machine, run, sink, membership->process());
  } catch (...) {
    membership.reset();  // nobody tells the machine anything any more
    throw;
  }
  output.end_all();
  membership->leave();
  const int status = exit_status(report, sink.status(), std::nullopt);
  std::fflush(nullptr);
  ::_exit(status);  // as where a program's threads remain
}

/// apctl net, which executes this program. `words` begin behind --net.
int run_net(int count, const char* const* words) {
  net::Request request;
  if (const auto status = net::read_request(count, words, request)) return *status;
  cluster::Cluster cluster =
      request.pool.empty() ? read_cluster("apctl", request.file) : pool::Pool::reach(request.pool).standing_cluster();
  add_allocated_hosts(cluster);
  return net::measure_network(request, cluster, own_path());
}

int run_cluster(const CommandLine& line) {
  std::optional<PmixRun> pmix = PmixRun::find();
  if (pmix && !pmix->is_launcher()) return pmix->run_node();
  try {
    return run_cluster_with(line, pmix ? &*pmix : nullptr);
  } catch (const Error&) {
    if (pmix) pmix->call_off();
    throw;
  }
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

// ---- mpiexec ----

/// Where a file of that name is no link to aprun but a copy, the nodes that it starts have the name, too.
std::string_view mpiexec_asked(int argc, char** argv) {
  const bool is_node = argc > 1 && std::string_view(argv[1]) == "--node";
  return argc > 0 && !is_node ? mpiexec_name(argv[0]) : std::string_view();
}

/// The command line of mpiexec, or of aprun. Returns nothing if there is a program to run, else the exit status.
std::optional<int> read_arguments(int argc, char** argv, CommandLine& line) {
  const std::string name(mpiexec_asked(argc, argv));
  if (name.empty()) return read_command_line(argc, argv, line);
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--help" || first == "-help" || first == "-h") return print(name, mpiexec_help());
  if (first == "--version" || first == "-version" || first == "-V")
    return print(name, fmt::format("{} (APlib) {}\n", name, version));
  try {
    utsname system{};
    const bool named = ::uname(&system) == 0;
    const Mpiexec asked = read_mpiexec({argv + 1, argv + std::max(argc, 1)}, named ? system.nodename : "");
    for (const auto& [variable, value] : asked.variables) ::setenv(variable.c_str(), value.c_str(), 1);
    if (!asked.note.empty()) tell_user(name, asked.note);
    std::vector<const char*> words{name.c_str()};
    for (const std::string& word : asked.words) words.push_back(word.c_str());
    if (const auto status = read_command_line(static_cast<int>(words.size()), words.data(), line)) return status;
    line.is_mpiexec = true;
    line.variables = asked.own;
    line.processes = asked.processes;
    line.others = asked.others;
    line.cluster_text = asked.hosts;
    if (!asked.hosts.empty()) line.cluster_file = "the hosts of " + name;
    return std::nullopt;
  } catch (const Error& error) {
    tell_user(name, error.what());
    return static_cast<int>(ExitStatus::usage);
  }
}

/// Whether cells run elsewhere, or none at all.
bool only_launches(const CommandLine& line) {
  if (!line.node.empty()) return false;
  const bool is_of_pmix = !line.cluster_file.empty() && start::Pmix::launched_us();  // then it may be a node
  return line.list_modules || !line.pool.empty() || (!line.cluster_file.empty() && !is_of_pmix);
}

}  // namespace
}  // namespace aplib::launch

#if APLIB_TSAN
// A node that cannot wait any longer ends at once, with threads that nobody has joined.
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }
#endif

int main(int argc, char** argv) {
  using namespace aplib::launch;
  // A process of a launcher for a program that shall have it for itself: before anything of ours begins in it.
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  if (argc > 3 && std::string_view(words[1]) == "--direct" && std::getenv(aplib::join_variable) != nullptr &&
      aplib::needs_process(words[2])) {
    tell_user(words[3], aplib::run_as_this_process(words[2], words.subspan(3)));
    return static_cast<int>(aplib::ExitStatus::program_failed);
  }
  // It executes this program again, which a launcher of nodes saves itself. Reading what mpiexec is asked for has
  // effects, so it is read once.
  const bool is_mpiexec = !mpiexec_asked(argc, argv).empty();
  if (is_mpiexec) settle(argv, Heap::of_cells);
  take_stack_limit();
  static_cast<void>(aplib::lend_thread_locals(aplib_thread_locals, sizeof aplib_thread_locals));
  open_standard_streams();
  end_by_signals();
  CommandLine line;
  std::string prefix = "aprun";
  try {
    if (argc > 1 && std::string_view(argv[1]) == net::verb) {
      prefix = "apctl";
      return run_net(argc - 1, argv + 1);
    }
    if (const auto status = read_arguments(argc, argv, line)) return *status;
    if (!is_mpiexec && !only_launches(line))
      settle(argv, line.direct || line.processes ? Heap::of_process : Heap::of_cells);
    if (line.direct) prefix = std::filesystem::path(line.program_name).filename().string();
    if (!line.node.empty()) {
      const bool is_kept = line.node == wire::kept_endpoint;
      const bool by_streams = is_kept || line.node == wire::streams_endpoint;
      return node::run_node({.endpoints = by_streams ? std::vector<std::string>() : wire::split_list(line.node),
                             .kept = is_kept,
                             .process = line.process,
                             .secure = aplib::comm::secure_from(line.machine.secure),
                             .timeout = line.machine.peer_timeout});
    }
    if (line.list_modules) return list_modules(line.machine);
    if (!line.pool.empty()) return run_cluster_with(line, nullptr);
    if (!line.cluster_file.empty()) return run_cluster(line);
    if (const char* const place = std::getenv(aplib::join_variable); place != nullptr && line.direct)
      return run_member(line, prefix, place);
    ::unsetenv(aplib::join_variable);
    refuse_files(line);
    return choose_processes(line) ? run_processes(line) : run(line, prefix);
  } catch (const aplib::Error& error) {
    tell_user(prefix, error.what());
    return static_cast<int>(aplib::ExitStatus::usage);
  } catch (const std::exception& error) {
    tell_user(prefix, failure_text(error));
    return static_cast<int>(aplib::ExitStatus::program_failed);
  }
}
