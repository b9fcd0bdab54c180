// SPDX-License-Identifier: MIT
#include "farm/apfarm/job_runner.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "aplib/error.hpp"
#include "base/cpus.hpp"
#include "base/os/local_socket.hpp"
#include "base/os/own_folder.hpp"
#include "base/text.hpp"
#include "farm/apfarm/printer.hpp"

extern "C" char** environ;

namespace aplib::farm {
namespace {

using std::chrono::milliseconds;

/// Between SIGTERM and SIGKILL.
constexpr milliseconds grace{200};
/// A system without room for a process or a file may have some soon. Without any for longer, no job can run.
constexpr std::chrono::seconds start_wait{5};
constexpr milliseconds start_again{50};
/// What -j 0, as many as possible, means.
constexpr std::size_t slots_without_limit = 250;
constexpr std::size_t slots_max = 100'000;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Time time_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

std::size_t slots_of(const std::string& word) {
  const auto cores = static_cast<double>(usable_cpu_count(allowed_cpus().size(), cpu_quota()));
  std::string_view number = word;
  const bool percent = number.ends_with('%');
  if (percent) number.remove_suffix(1);
  const char sign = number.empty() ? '\0' : number.front();
  if (sign == '+' || sign == '-') number.remove_prefix(1);
  const auto value = text::parse_number(number);
  if (!value || *value > slots_max || (percent && (sign == '+' || sign == '-'))) {
    throw Error(Errc::bad_option,
                fmt::format("-j {}: use a number of jobs, +N or -N for more or less than the cores, or N%", word));
  }
  double jobs = static_cast<double>(*value);
  if (percent) jobs = std::ceil(cores * jobs / 100);
  if (sign == '+') jobs = cores + jobs;
  if (sign == '-') jobs = cores - jobs;
  if (jobs == 0 && sign == '\0') return slots_without_limit;
  return static_cast<std::size_t>(std::clamp(jobs, 1.0, static_cast<double>(slots_max)));
}

std::string usual_shell() {
  for (const char* name : {"PARALLEL_SHELL", "SHELL"}) {
    const char* shell = std::getenv(name);
    if (shell != nullptr && *shell != '\0') return shell;
  }
  return "/bin/sh";
}

os::UniqueFd signals_as_file(std::initializer_list<int> numbers) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : numbers) ::sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  os::UniqueFd descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor) os::refuse_descriptor("signals");
  return descriptor;
}

std::string cell_program() {
  const std::filesystem::path own = os::own_program();
  std::string program = (own.parent_path().parent_path() / "lib/aplib/farm-cell").string();
  if (::access(program.c_str(), X_OK) == 0) return program;
  throw Error(Errc::failed,
              fmt::format("--cells needs {}, which is not there: is APlib installed completely?", program));
}

JobCell::JobCell(const std::string& program, const std::vector<char*>& environment, std::atomic<pid_t>* group,
                 int nice) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) os::refuse_descriptor("a cell's socket");
  socket_.reset(ends[0]);
  const os::UniqueFd theirs(ends[1]);
  process_.emplace(Command{.text = program, .words = {program}}, "/bin/sh", environment,
                   JobStreams{.input = theirs.get(), .nice = nice, .files = {}, .group = group});
}

bool JobCell::run(const JobOrder& order, const std::string& entry, int input, int output, int error) {
  launch::wire::Bytes bytes;
  append_message(
      bytes,
      CellJob{
          .words = order.command.words, .sequence = order.sequence, .slot_number = order.slot_number, .entry = entry});
  const std::array<int, CellJob::descriptors> descriptors{input, output, error};
  // It has nothing else to do than to read.
  return os::send_message(socket_.get(), std::span(bytes).first(1), descriptors) &&
         os::send_all(socket_.get(), std::span(bytes).subspan(1));
}

std::optional<CellEnded> JobCell::hear() {
  std::array<std::byte, 256> piece;
  const ssize_t got = ::recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got <= 0) return std::nullopt;
  stream_.add(std::span(piece).first(static_cast<std::size_t>(got)));
  return stream_.next<CellEnded>();
}

/// The program's environment, with what differs from job to job.
class JobRunner::Environment {
 public:
  explicit Environment(const std::string& owner) : owner_(fmt::format("PARALLEL_PID={}", owner)) {
    for (char** each = environ; *each != nullptr; ++each) pointers_.push_back(*each);
    place_ = pointers_.size();
    pointers_.insert(pointers_.end(), {owner_.data(), nullptr, nullptr, nullptr});
  }
  const std::vector<char*>& of(const JobOrder& order) {
    sequence_ = fmt::format("PARALLEL_SEQ={}", order.sequence);
    slot_ = fmt::format("PARALLEL_JOBSLOT={}", order.slot_number);
    pointers_[place_ + 1] = sequence_.data();
    pointers_[place_ + 2] = slot_.data();
    return pointers_;
  }

 private:
  std::vector<char*> pointers_;
  std::size_t place_;
  std::string owner_;
  std::string sequence_;
  std::string slot_;
};

JobRunner::JobRunner(const Settings& settings)
    : settings_(settings),
      ends_(signals_as_file({SIGCHLD})),
      no_input_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      guard_(2 * settings.slots),
      cell_program_(settings.cells || !settings.entry.empty() ? cell_program() : ""),
      environment_(std::make_unique<Environment>(settings.owner)),
      slots_(settings.slots) {
  news_.came = slots_.size();
}

JobRunner::~JobRunner() {
  for (Slot& slot : slots_) {
    end_cell(slot);
    if (!slot.process) continue;
    slot.process->signal(SIGKILL);
    ::waitpid(slot.process->pid(), nullptr, 0);
  }
}

void JobRunner::signal(Slot& slot, int number) {
  if (slot.in_cell)
    slot.cell->signal(number);
  else
    slot.process->signal(number);
}

void JobRunner::give(std::size_t index, JobOrder order) {
  Slot& slot = slots_[index];
  slot.orders.push_back(std::move(order));
  if (slot.orders.size() == 1) begin(slot);
}

/// The first order of the slot, which has not begun.
void JobRunner::begin(Slot& slot) {
  if (paused_) {
    starts_wait_ = true;
    return;
  }
  const JobOrder& order = slot.orders.front();
  if (!slot.begun) {
    slot.begun = time_now();
    slot.start = wall_seconds();
  }
  try {
    make_files(slot);
    if (begin_in_cell(slot)) return;
    if (!settings_.entry.empty()) {
      throw Error(Errc::failed,
                  order.command.words.empty()
                      ? "what the shell would read differently is no function's argument: -q takes the "
                        "command's words as they are"
                      : fmt::format("cannot run job {}: each cell that was started for it has gone", order.sequence));
    }
    JobStreams streams{.input = no_input_.get(),
                       .nice = settings_.nice,
                       .files = std::move(slot.files),
                       .group = &guard_.group(index_of(slot))};
    slot.process.emplace(order.command, settings_.shell, environment_->of(order), std::move(streams));
  } catch (const Error& error) {
    for (Slot& each : slots_) {
      if (!runs(each)) each.files = {};  // they may be all that others lack
    }
    if (error.code() != Errc::exhausted)
      return conclude(slot, {.begun = true, .exit_value = not_started_value, .problem = error.what()});
    starts_wait_ = true;
    lack_ = error;
  }
}

void JobRunner::make_files(Slot& slot) {
  if (!settings_.captures) return;
  for (os::UniqueFd& file : slot.files) {
    if (!file) file = make_job_file();
  }
}

/// False: it needs a process.
bool JobRunner::begin_in_cell(Slot& slot) {
  const JobOrder& order = slot.orders.front();
  if (cell_program_.empty() || order.command.words.empty() || not_cells_.contains(order.command.words[0])) return false;
  try {
    // A cell that has gone meanwhile is replaced once.
    for (int attempt = 0; attempt < 2 && !slot.in_cell; ++attempt) {
      if (!slot.cell) slot.cell.emplace(cell_program_, environment_->of(order), &cell_group(slot), settings_.nice);
      std::array<int, 2> outputs{STDOUT_FILENO, STDERR_FILENO};
      if (settings_.captures) outputs = {slot.files[0].get(), slot.files[1].get()};
      slot.in_cell = slot.cell->run(order, settings_.entry, no_input_.get(), outputs[0], outputs[1]);
      if (!slot.in_cell) end_cell(slot);
    }
  } catch (const Error&) {
    if (!settings_.entry.empty()) throw;  // a process is of no use
    return false;                         // a process may be possible, or says why not
  }
  return slot.in_cell;
}

void JobRunner::end_in_cell(Slot& slot, const CellEnded& ended) {
  slot.in_cell = false;
  if (ended.spent || slot.stopping) end_cell(slot);
  if (!ended.loaded && !slot.stopping) {
    not_cells_.insert(slot.orders.front().command.words[0]);
    begin(slot);
    return;
  }
  conclude(slot, {.begun = true, .exit_value = ended.exit_value});
}

/// Kills it, with what programs have left there.
void JobRunner::end_cell(Slot& slot) {
  if (!slot.cell) return;
  slot.cell->signal(SIGKILL);
  cell_group(slot).store(0, std::memory_order_release);
  ::waitpid(slot.cell->pid(), nullptr, 0);
  slot.cell.reset();
}

/// Slots whose process could not be started.
void JobRunner::begin_waiting() {
  if (!starts_wait_ || paused_) return;
  starts_wait_ = false;
  for (Slot& slot : slots_) {
    if (!slot.orders.empty() && !runs(slot)) begin(slot);
  }
}

void JobRunner::stop(std::size_t index, TaskNumber task, Stop how) {
  if (index >= slots_.size()) return;
  Slot& slot = slots_[index];
  const auto order = std::ranges::find(slot.orders, task, &JobOrder::task);
  if (order == slot.orders.end()) return;
  const bool is_first = order == slot.orders.begin();
  if (is_first && runs(slot)) {
    if (how == Stop::term && !slot.stopping) end_early(slot);
    if (how == Stop::kill) signal(slot, SIGKILL);
  } else if (is_first) {
    conclude(slot, {});
  } else {
    news_.ends.push_back({.slot = index, .task = task});
    slot.orders.erase(order);
  }
}

void JobRunner::end_early(Slot& slot) {
  slot.stopping = true;
  signal(slot, SIGTERM);
  signal(slot, SIGCONT);  // a stopped one would not hear it
  slot.kill_at = time_now() + grace;
  killing_ = true;
}

/// A job that could not write has failed, though few programs look. All jobs share the room: whatever runs while there
/// is none may have lost something, also when a job's end makes some again.
void JobRunner::judge_output(Slot& slot, JobEnd& end) {
  const std::array<int, 2> files =
      slot.process ? slot.process->files() : std::array{slot.files[0].get(), slot.files[1].get()};
  for (const int file : files) {
    const int problem = why_full(file);
    for (Slot& each : slots_) {
      if (problem != 0 && (runs(each) || &each == &slot)) each.full = problem;
    }
  }
  const int problem = std::exchange(slot.full, 0);
  if (problem == 0) return;
  end.problem =
      fmt::format("what job {} has written may be lost in part: {}", slot.orders.front().sequence, full_text(problem));
  if (end.exit_value == 0 && end.signal == 0) end.exit_value = not_started_value;
}

/// The slot's first order has run, or will not.
void JobRunner::conclude(Slot& slot, JobEnd end) {
  end.slot = index_of(slot);
  end.task = slot.orders.front().task;
  end.start = slot.start;
  if (slot.begun) end.ran = time_now() - *slot.begun;
  if (settings_.captures && end.begun && end.problem.empty()) judge_output(slot, end);
  if (slot.process && settings_.captures) {
    slot.files = slot.process->unused_files();
    if (!slot.files[JobProcess::output]) end.files = slot.process->take_files();
  } else if (settings_.captures && (bytes_of_file(slot.files[0].get()) + bytes_of_file(slot.files[1].get()) != 0)) {
    end.files = std::move(slot.files);
  }
  news_.ends.push_back(std::move(end));
  slot.process.reset();
  slot.begun.reset();
  slot.stopping = false;
  slot.kill_at = Time::max();
  slot.orders.pop_front();
  if (!slot.orders.empty()) begin(slot);
}

void JobRunner::add_waits(std::vector<pollfd>& waits) const {
  waits.push_back({ends_.get(), POLLIN, 0});
  for (const Slot& slot : slots_) {
    if (slot.in_cell) waits.push_back({slot.cell->descriptor(), POLLIN, 0});
  }
}

std::optional<Time> JobRunner::next_time() const {
  if (news_.came || !news_.ends.empty()) return Time{0};
  std::optional<Time> until;
  const auto also = [&](Time time) { until = until ? std::min(*until, time) : time; };
  if (killing_) {
    for (const Slot& slot : slots_) {
      if (runs(slot) && slot.kill_at != Time::max()) also(slot.kill_at);
    }
  }
  if (starts_wait_ && !paused_) also(time_now() + start_again);
  return until;
}

void JobRunner::work(Time now, std::span<const pollfd> waits, HostNews& news) {
  for (Slot& slot : slots_) {
    if (!slot.in_cell) continue;
    if (const auto ended = slot.cell->hear()) end_in_cell(slot, *ended);
  }
  if (waits.empty() || waits[0].revents != 0) reap();
  pass_time(now);
  begin_waiting();
  news = std::exchange(news_, {});
  // What runs makes room when it ends, and what has ended when its output has gone.
  const bool lacks_room = starts_wait_ && !paused_ && std::ranges::none_of(slots_, runs);
  if (!lacks_room || !news.ends.empty()) {
    lacks_since_.reset();
  } else if (!lacks_since_) {
    lacks_since_ = now;
  } else if (now - *lacks_since_ >= start_wait) {
    throw Error(*lack_);
  }
}

void JobRunner::pass_time(Time now) {
  if (!killing_) return;
  killing_ = false;
  for (Slot& slot : slots_) {
    if (!runs(slot) || slot.kill_at == Time::max()) continue;
    if (slot.kill_at <= now) {
      signal(slot, SIGKILL);
      slot.kill_at = Time::max();
    } else {
      killing_ = true;
    }
  }
}

void JobRunner::reap() {
  std::array<signalfd_siginfo, 16> infos;
  while (::read(ends_.get(), infos.data(), sizeof infos) > 0) {
  }
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto slot = std::ranges::find_if(slots_, [&](const Slot& each) {
      return (each.process && each.process->pid() == info.si_pid) || (each.cell && each.cell->pid() == info.si_pid);
    });
    const bool is_cell = slot != slots_.end() && slot->cell && slot->cell->pid() == info.si_pid;
    if (is_cell) {
      slot->cell->signal(SIGKILL);
      cell_group(*slot).store(0, std::memory_order_release);
    } else if (slot != slots_.end()) {
      if (slot->stopping) slot->process->signal(SIGKILL);  // what is left of its group
      // Before the number is another's.
      guard_.group(index_of(*slot)).store(0, std::memory_order_release);
    }
    int status = 0;
    ::waitpid(info.si_pid, &status, 0);
    if (slot == slots_.end()) continue;
    // The program has taken the cell with it, as by a crash or exec.
    if (is_cell) slot->cell.reset();
    if (is_cell && !std::exchange(slot->in_cell, false)) continue;
    conclude(*slot, {.begun = true,
                     .exit_value = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                     .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0});
  }
}

}  // namespace aplib::farm
