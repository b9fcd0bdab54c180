// SPDX-License-Identifier: MIT
#include "farm/apfarm/job_runner.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "aplib/error.hpp"
#include "base/cpus.hpp"
#include "base/text.hpp"

extern "C" char** environ;

namespace aplib::farm {
namespace {

using std::chrono::milliseconds;

/// Between SIGTERM and SIGKILL.
constexpr milliseconds grace{200};
/// A system without room for a process may have some soon; for longer, the job fails.
constexpr std::chrono::seconds start_wait{10};
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
      guard_(settings.slots),
      environment_(std::make_unique<Environment>(settings.owner)),
      slots_(settings.slots) {
  news_.came = slots_.size();
}

JobRunner::~JobRunner() {
  for (Slot& slot : slots_) {
    if (!slot.process) continue;
    slot.process->signal(SIGKILL);
    ::waitpid(slot.process->pid(), nullptr, 0);
  }
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
  JobStreams streams{.input = order.input >= 0 ? order.input : no_input_.get(),
                     .captures = settings_.captures,
                     .files = std::move(slot.files),
                     .group = &guard_.group(index_of(slot))};
  try {
    slot.process.emplace(order.command, settings_.shell, environment_->of(order), std::move(streams));
  } catch (const Error& error) {
    if (error.code() == Errc::exhausted && time_now() - *slot.begun < start_wait) {
      starts_wait_ = true;
      return;
    }
    conclude(slot, {.begun = true, .exit_value = 255, .problem = error.what()});
  }
}

/// Slots whose process could not be started.
void JobRunner::begin_waiting() {
  if (!starts_wait_ || paused_) return;
  starts_wait_ = false;
  for (Slot& slot : slots_) {
    if (!slot.orders.empty() && !slot.process) begin(slot);
  }
}

void JobRunner::stop(std::size_t index, TaskNumber task, Stop how) {
  if (index >= slots_.size()) return;
  Slot& slot = slots_[index];
  const auto order = std::ranges::find(slot.orders, task, &JobOrder::task);
  if (order == slot.orders.end()) return;
  const bool is_first = order == slot.orders.begin();
  if (is_first && slot.process) {
    if (how == Stop::term && !slot.stopping) end_early(slot);
    if (how == Stop::kill) slot.process->signal(SIGKILL);
  } else if (is_first) {
    conclude(slot, {});
  } else {
    news_.ends.push_back({.slot = index, .task = task});
    slot.orders.erase(order);
  }
}

void JobRunner::end_early(Slot& slot) {
  slot.stopping = true;
  slot.process->signal(SIGTERM);
  slot.process->signal(SIGCONT);  // a stopped one would not hear it
  slot.kill_at = time_now() + grace;
  killing_ = true;
}

/// The slot's first order has run, or will not.
void JobRunner::conclude(Slot& slot, JobEnd end) {
  end.slot = index_of(slot);
  end.task = slot.orders.front().task;
  end.start = slot.start;
  if (slot.begun) end.ran = time_now() - *slot.begun;
  if (slot.process && settings_.captures) {
    slot.files = slot.process->unused_files();
    if (!slot.files[JobProcess::output]) end.files = slot.process->take_files();
  }
  news_.ends.push_back(std::move(end));
  slot.process.reset();
  slot.begun.reset();
  slot.stopping = false;
  slot.kill_at = Time::max();
  slot.orders.pop_front();
  if (!slot.orders.empty()) begin(slot);
}

void JobRunner::add_waits(std::vector<pollfd>& waits) const { waits.push_back({ends_.get(), POLLIN, 0}); }

std::optional<Time> JobRunner::next_time() const {
  if (news_.came || !news_.ends.empty()) return Time{0};
  std::optional<Time> until;
  const auto also = [&](Time time) { until = until ? std::min(*until, time) : time; };
  if (killing_) {
    for (const Slot& slot : slots_) {
      if (slot.process && slot.kill_at != Time::max()) also(slot.kill_at);
    }
  }
  if (starts_wait_ && !paused_) also(time_now() + start_again);
  return until;
}

void JobRunner::work(Time now, std::span<const pollfd> waits, HostNews& news) {
  if (waits.empty() || waits[0].revents != 0) reap();
  pass_time(now);
  begin_waiting();
  news = std::exchange(news_, {});
}

void JobRunner::pass_time(Time now) {
  if (!killing_) return;
  killing_ = false;
  for (Slot& slot : slots_) {
    if (!slot.process || slot.kill_at == Time::max()) continue;
    if (slot.kill_at <= now) {
      slot.process->signal(SIGKILL);
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
    const auto slot = std::ranges::find_if(
        slots_, [&](const Slot& each) { return each.process && each.process->pid() == info.si_pid; });
    if (slot != slots_.end()) {
      if (slot->stopping) slot->process->signal(SIGKILL);  // what is left of its group
      // Before the number is another's.
      guard_.group(index_of(*slot)).store(0, std::memory_order_release);
    }
    int status = 0;
    ::waitpid(info.si_pid, &status, 0);
    if (slot == slots_.end()) continue;
    conclude(*slot, {.begun = true,
                     .exit_value = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                     .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0});
  }
}

}  // namespace aplib::farm
