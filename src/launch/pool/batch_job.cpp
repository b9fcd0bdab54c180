// SPDX-License-Identifier: MIT
#include "launch/pool/batch_job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <system_error>
#include <thread>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;

namespace {

constexpr auto command_patience = 60s;  // a busy batch system takes its time
constexpr auto begin_pause = 20ms;      // between looks at what the script has written

/// What differs between batch systems.
struct BatchWords {
  std::string_view name;
  std::string_view key;
  const char* submit;
  const char* number_alone;  // an option of it
  const char* cancel;
};
constexpr std::array batch_words{BatchWords{"Slurm", "slurm", "sbatch", "--parsable", "scancel"},
                                 BatchWords{"Grid Engine", "sge", "qsub", "-terse", "qdel"}};

const BatchWords& words_of(BatchSystem system) { return batch_words.at(static_cast<std::size_t>(system)); }

/// The lines that are whole.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// The next word of a line, which it loses.
std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

// Which keeper says a line is seen by its number. The shells' own lines are marks, too.
constexpr std::string_view mark = "aplib-keeper ";
constexpr std::string_view stands = "stands ";
constexpr std::string_view ended = "ended ";
constexpr std::string_view over = "over";
constexpr std::string_view socket_ending = ".keeper";

}  // namespace

std::string_view batch_text(BatchSystem system) { return words_of(system).name; }

BatchSystem batch_system(std::string_view name) {
  for (std::size_t i = 0; i < batch_words.size(); ++i) {
    const BatchWords& words = batch_words.at(i);
    if (name == words.key || (name == "auto" && start::is_in_path(words.submit))) return static_cast<BatchSystem>(i);
  }
  if (name == "auto") {
    throw Error(Errc::bad_option,
                "--submit: neither Slurm's sbatch nor Grid Engine's qsub is in PATH: is this a computer from which "
                "jobs are submitted?");
  }
  throw Error(Errc::bad_option, fmt::format("--submit={}: no batch system of that name is known: use slurm, sge or "
                                            "auto",
                                            name));
}

// ---- the script ----

std::string batch_script(const BatchPlan& plan) {
  const auto keeper = [&](std::string_view number) {
    return fmt::format("{} --step {}-{}; echo \"{}{}{}\" >&2", start::shell_command(plan.keeper), plan.keepers, number,
                       mark, ended, number);
  };
  std::string head;
  std::string hosts;
  std::string work;
  if (plan.system == BatchSystem::slurm) {
    head = fmt::format("#SBATCH --job-name=aplib-{}\n#SBATCH --output={}\n", plan.pool, plan.folder + "/output");
    hosts = "echo \"$SLURM_JOB_NODELIST\" > hosts\n";
    // What the keepers start may use all that the job has, and goes by no other step's limits.
    work = fmt::format(
        "srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=\"$SLURM_JOB_NUM_NODES\" --ntasks-per-node=1 --overlap \\\n"
        "  --overcommit --cpu-bind=none --mpi=none --kill-on-bad-exit=0 --wait=0 --input=all --unbuffered \\\n"
        "  sh -c {} \\\n"
        "  < key",
        start::shell_quote(keeper("$SLURM_NODEID")));
  } else {
    head = fmt::format("#$ -N aplib-{}\n#$ -S /bin/sh\n#$ -j y\n#$ -o {}\n", plan.pool, plan.folder + "/output");
    hosts =
        "if [ -r \"$PE_HOSTFILE\" ]; then names=$(cut -d ' ' -f 1 \"$PE_HOSTFILE\" | uniq); else names=$(hostname); "
        "fi\n"
        "echo $names | tr ' ' , > hosts\n"
        "unset PE_HOSTFILE\n";  // programs of this pool run on the host where they are started
    // The first host is the one on which the script runs.
    work = fmt::format(
        "{{\n"
        "  number=0 clean=\"env -u XDG_RUNTIME_DIR -u SSH_CONNECTION\"\n"
        "  for name in $names; do\n"
        "    if [ $number = 0 ]; then start=; else start=\"qrsh -inherit $name $clean\"; fi\n"
        "    {{ $start {}; }} < key &\n"
        "    number=$((number + 1))\n"
        "  done\n"
        "  wait\n"
        "}}",
        keeper("$number"));
  }
  return fmt::format(
      "#!/bin/sh\n{}"
      "# Pool {} of APlib: a keeper on each host of this job, which ends with the last of them (apctl down {}).\n"
      "# The folders of this user, and addresses, are those of the computer from which it was submitted.\n"
      "unset XDG_RUNTIME_DIR SSH_CONNECTION\n"
      "cd {} || exit 1\n"
      "{}"
      "{} 2>&1 |\n"
      "while IFS= read -r line; do\n"
      "  case $line in\n"
      "  '{}'*) printf '%s\\n' \"${{line#{}}}\" >> hosts ;;\n"
      "  *) printf '%s\\n' \"$line\" ;;\n"
      "  esac\n"
      "done\n"
      "# apctl down may have removed this folder.\n"
      "{{ echo {} >> hosts; }} 2> /dev/null || true\n",
      head, plan.pool, plan.pool, start::shell_quote(plan.folder), hosts, work, mark, mark, over);
}

BatchHosts read_batch_hosts(std::string_view text) {
  BatchHosts read;
  const std::vector<std::string_view> lines = lines_of(text);
  if (lines.empty()) return read;
  for (std::string& name : start::expand_hostlist(lines[0])) read.hosts.push_back({.name = std::move(name)});
  for (const std::string_view line : std::span(lines).subspan(1)) {
    read.over = read.over || line == over;
    const bool is_socket = line.starts_with(stands) && line.ends_with(socket_ending);
    if (!is_socket && !line.starts_with(ended)) continue;
    std::string_view number = line.substr(is_socket ? line.rfind('-') + 1 : ended.size());
    if (is_socket) number.remove_suffix(socket_ending.size());
    const auto host = text::parse_number(number);
    if (!host || *host >= read.hosts.size()) continue;
    if (is_socket) read.hosts[*host].socket = line.substr(stands.size());
    read.hosts[*host].ended = !is_socket;
  }
  return read;
}

// ---- what the batch system says ----

namespace {

BatchState read_slurm_state(std::string_view answer) {
  using Kind = BatchState::Kind;
  constexpr std::array<std::string_view, 5> waiting{"PENDING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "CONFIGURING"};
  constexpr std::array<std::string_view, 3> running{"RUNNING", "RESIZING", "SIGNALING"};
  const std::string_view line = answer.substr(0, answer.find('\n'));
  const std::size_t bar = line.find('|');
  const std::string_view state = line.substr(0, bar);
  const std::string_view reason = bar == line.npos ? "" : line.substr(bar + 1);
  BatchState read{.kind = Kind::ended, .words = std::string(state)};
  if (!reason.empty() && reason != "None") read.words += fmt::format(", {}", reason);
  if (std::ranges::count(waiting, state) != 0) read.kind = Kind::waits;
  if (std::ranges::count(running, state) != 0) read.kind = Kind::runs;
  return read;
}

/// A line of qstat has the job's number, priority, name, user and state.
BatchState read_sge_state(std::string_view answer, std::string_view number) {
  using Kind = BatchState::Kind;
  std::string all(answer);
  all += '\n';
  for (std::string_view line : lines_of(all)) {
    if (take_word(line) != number) continue;
    for (int i = 0; i < 3; ++i) static_cast<void>(take_word(line));
    const std::string_view state = take_word(line);
    const bool waits = state.find_first_of("qhE") != state.npos;
    return {.kind = waits ? Kind::waits : Kind::runs, .words = std::string(state)};
  }
  return {.kind = Kind::ended};
}

}  // namespace

BatchState read_batch_state(BatchSystem system, std::string_view answer, std::string_view number) {
  return system == BatchSystem::slurm ? read_slurm_state(answer) : read_sge_state(answer, number);
}

// ---- the job ----

std::string BatchJob::text() const { return fmt::format("job {} of {}", number, batch_text(system)); }

std::string BatchJob::file(std::string_view name) const { return fmt::format("{}/{}", folder, name); }

BatchHosts BatchJob::hosts() const { return read_batch_hosts(os::read_file(file("hosts")).value_or("")); }

BatchState BatchJob::state() const {
  const bool is_slurm = system == BatchSystem::slurm;
  const std::vector<std::string> command =
      is_slurm ? std::vector<std::string>{"squeue", "--noheader", "--states=all", "--format=%T|%r", "--jobs=" + number}
               : std::vector<std::string>{"qstat"};
  try {
    const start::CommandEnd end = start::run_command(command, command_patience);
    // Slurm does not know a job of long ago.
    if (end.is_well() || (is_slurm && end.error.find("Invalid job id") != std::string::npos))
      return read_batch_state(system, end.output, number);
    return {.words = end.words(command[0])};
  } catch (const Error& error) {
    return {.words = error.what()};
  }
}

std::string BatchJob::absence() const {
  const BatchState state = this->state();
  const std::string quoted = state.words.empty() ? "" : fmt::format(" ({})", state.words);
  switch (state.kind) {
    case BatchState::Kind::waits:
      return fmt::format("still waits for its hosts{}: try again when it runs", quoted);
    case BatchState::Kind::runs:
      return fmt::format("runs{}, and its keepers are not there yet, or have ended: {} says more", quoted,
                         file("output"));
    case BatchState::Kind::ended:
      return fmt::format("has ended{}, and its keepers with it: {} may say why", quoted, file("output"));
    case BatchState::Kind::unknown:
      break;
  }
  return fmt::format("has no keepers now, and {} does not say how it is{}", batch_text(system), quoted);
}

void BatchJob::submit(const std::vector<std::string>& options) {
  const BatchWords& words = words_of(system);
  std::vector<std::string> command{words.submit, words.number_alone};
  command.insert(command.end(), options.begin(), options.end());
  command.push_back(file("script"));
  start::CommandEnd end;
  try {
    end = start::run_command(command, command_patience);
  } catch (const Error& error) {
    throw Error(Errc::failed, fmt::format("{}; is this a computer from which jobs are submitted?", error.what()));
  }
  number = end.output.substr(0, end.output.find_first_not_of("0123456789"));
  if (end.is_well() && !number.empty()) {
    submitted = true;
    return;
  }
  throw Error(Errc::failed, fmt::format("{} took no job ({}): its options follow --, as in apctl up --submit -- {}; "
                                        "the command was `{}`",
                                        batch_text(system), end.words(words.submit),
                                        system == BatchSystem::slurm ? "--nodes=4 --time=1:00:00" : "-pe mpi 4",
                                        start::shell_command(command)));
}

void BatchJob::begin_here() const {
  const std::string script = file("script");
  const std::string output = file("output");
  const os::UniqueFd said(::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  const os::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!said || !nothing) throw Error(Errc::failed, fmt::format("cannot write {}: {}", output, os::text_of(errno)));
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    ::dup2(nothing.get(), STDIN_FILENO);
    ::dup2(said.get(), STDOUT_FILENO);
    ::dup2(said.get(), STDERR_FILENO);
    ::execl("/bin/sh", "sh", script.c_str(), nullptr);
    ::_exit(127);
  }
  if (child < 0) throw Error(Errc::exhausted, "cannot start a process of its own");
  for (;;) {
    const bool has_ended = ::waitpid(child, nullptr, WNOHANG) != 0;
    const BatchHosts now = hosts();
    const auto is_settled = [](const BatchHosts::Host& host) { return host.ended || !host.socket.empty(); };
    const auto stands = [](const BatchHosts::Host& host) { return !host.ended && !host.socket.empty(); };
    if (!has_ended && !(now.hosts.size() != 0 && std::ranges::all_of(now.hosts, is_settled))) {
      std::this_thread::sleep_for(begin_pause);
      continue;
    }
    if (!has_ended && std::ranges::any_of(now.hosts, stands)) return;
    std::vector<std::string> words;
    const std::string all = os::read_file(output).value_or("");
    for (const std::string_view line : lines_of(all)) words.emplace_back(line);
    throw Error(Errc::failed, fmt::format("{}: no keeper has started{}", text(), start::in_quotes(words)));
  }
}

std::vector<std::string> BatchJob::addresses(const std::vector<std::string>& names) const {
  std::vector<std::string> addresses(names.size());
  const start::CommandEnd end = start::run_command(
      {"sinfo", "--noheader", "--Node", "--format=%N %o", fmt::format("--nodes={}", fmt::join(names, ","))},
      command_patience);
  for (std::string_view line : lines_of(end.output)) {
    const auto at = std::ranges::find(names, take_word(line));
    if (at == names.end()) continue;
    std::string& address = addresses[static_cast<std::size_t>(at - names.begin())];
    const std::vector<std::string> found = wire::look_up(std::string(take_word(line)));
    if (address.empty() && !found.empty()) address = found.front();
  }
  return addresses;
}

std::vector<std::string> BatchJob::command_on(const std::string& host, const std::string& script) const {
  return {"srun",      "--quiet",      "--jobid=" + number, "--nodelist=" + host, "--nodes=1",    "--ntasks=1",
          "--overlap", "--overcommit", "--cpu-bind=none",   "--mpi=none",         "--unbuffered", "sh",
          "-c",        script};
}

std::string BatchJob::cancel() const {
  try {
    const start::CommandEnd end = start::run_command({words_of(system).cancel, number}, command_patience);
    if (end.is_well()) return {};
    const BatchState::Kind kind = state().kind;
    return kind == BatchState::Kind::ended ? "" : end.words(words_of(system).cancel);
  } catch (const Error& error) {
    return error.what();
  }
}

std::string print_batch_job(const BatchJob& job) {
  return fmt::format("{}\n{}\n{}\n{}\n", words_of(job.system).key, job.number, job.submitted ? "submitted" : "here",
                     job.folder);
}

std::optional<BatchJob> read_batch_job(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  if (lines.size() != 4) return std::nullopt;
  const auto* const words = std::ranges::find(batch_words, lines[0], &BatchWords::key);
  if (words == batch_words.end()) return std::nullopt;
  return BatchJob{.system = static_cast<BatchSystem>(words - batch_words.begin()),
                  .number = std::string(lines[1]),
                  .folder = std::string(lines[3]),
                  .submitted = lines[2] == "submitted"};
}

}  // namespace aplib::launch::pool
