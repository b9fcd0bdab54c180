// SPDX-License-Identifier: MIT
#include "farm/apfarm/session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/text.hpp"
#include "farm/apfarm/job_process.hpp"
#include "farm/apfarm/joblog.hpp"
#include "farm/apfarm/printer.hpp"
#include "launch/terminal.hpp"

extern "C" char** environ;

namespace aplib::farm {

std::optional<Halt> Halt::parse(std::string_view text) {
  if (text == "never" || text == "0") return Halt{};
  if (text == "1") text = "soon,fail=1";
  if (text == "2") text = "now,fail=1";
  Halt halt{.when = When::soon};
  const std::size_t comma = text.find(',');
  if (comma != std::string_view::npos) {
    const std::string_view when = text.substr(0, comma);
    if (when != "now" && when != "soon") return std::nullopt;
    halt.when = when == "now" ? When::now : When::soon;
    text.remove_prefix(comma + 1);
  }
  const std::size_t sign = text.find('=');
  if (sign == std::string_view::npos) return std::nullopt;
  const std::string_view on = text.substr(0, sign);
  if (on == "fail")
    halt.on = On::failed;
  else if (on == "success")
    halt.on = On::succeeded;
  else if (on == "done")
    halt.on = On::done;
  else
    return std::nullopt;
  std::string_view number = text.substr(sign + 1);
  const bool percent = number.ends_with('%');
  if (percent) number.remove_suffix(1);
  const auto value = text::parse_number(number);
  if (!value || *value == 0 || (percent && *value > 100)) return std::nullopt;
  percent ? halt.part = static_cast<double>(*value) / 100 : halt.count = *value;
  return halt;
}

namespace {

using std::chrono::milliseconds;

/// Between SIGTERM and SIGKILL.
constexpr milliseconds grace{200};
/// A system without room for a process may have some soon; for longer, the job fails.
constexpr std::chrono::seconds start_wait{10};
constexpr milliseconds start_again{50};

Time now() { return std::chrono::steady_clock::now().time_since_epoch(); }

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
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

/// How many outputs may wait for their turn: each is two files.
std::uint64_t outputs_max() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return std::clamp<std::uint64_t>(limit.rlim_cur / 4, 8, 4096);
}

/// The program's environment, with what differs from job to job.
class Environment {
 public:
  Environment() {
    for (char** each = environ; *each != nullptr; ++each) pointers_.push_back(*each);
    pid_ = fmt::format("PARALLEL_PID={}", ::getpid());
    place_ = pointers_.size();
    pointers_.insert(pointers_.end(), {pid_.data(), nullptr, nullptr, nullptr});
  }
  const std::vector<char*>& of(std::uint64_t sequence, std::size_t slot) {
    sequence_ = fmt::format("PARALLEL_SEQ={}", sequence);
    slot_ = fmt::format("PARALLEL_JOBSLOT={}", slot);
    pointers_[place_ + 1] = sequence_.data();
    pointers_[place_ + 2] = slot_.data();
    return pointers_;
  }

 private:
  std::vector<char*> pointers_;
  std::size_t place_;
  std::string pid_;
  std::string sequence_;
  std::string slot_;
};

struct Job {
  std::uint64_t sequence = 0;
  std::vector<std::string> values{};
};

/// A job that has ended, until it is printed.
struct Ended {
  Job job;
  JobRecord record;
  std::optional<JobProcess> process{};  // its files
  bool timed_out = false;
};

/// Where one job runs at a time.
struct Slot {
  WorkerNumber worker = 0;
  TaskNumber task = 0;
  Job job{};
  JobRecord record{};
  std::optional<JobProcess> process{};
  JobFiles files{};    // for the next one
  bool taken = false;  // by a job; without a process, it is to be started again
  bool stopping = false;
  bool timed_out = false;
  Time begun{};
  Time kill_at = Time::max();
};

class Session {
 public:
  Session(const CommandTemplate& commands, Inputs& inputs, const SessionOptions& options)
      : commands_(commands),
        inputs_(inputs),
        options_(options),
        ends_(signals_as_file({SIGCHLD})),
        signals_(signals_as_file({SIGINT, SIGTERM, SIGHUP})),
        printer_(signals_.get()),
        queue_({.batch_max = 1, .copies = false}),
        guard_(options.jobs),
        slots_(options.jobs),
        outputs_max_(options.keep_order ? outputs_max() : UINT64_MAX) {
    ::signal(SIGPIPE, SIG_IGN);
    if (!options.joblog.empty()) joblog_.emplace(options.joblog, options.resume != Resume::no);
    no_input_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].worker = queue_.join();
      slot_of_[slots_[i].worker] = i;
    }
  }
  ~Session() {
    for (Slot& slot : slots_) {  // only when something was thrown
      if (!slot.process) continue;
      slot.process->signal(SIGKILL);
      ::waitpid(slot.process->pid(), nullptr, 0);
    }
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int run() {
    while (!is_over()) {
      feed();
      if (!closing_) {
        queue_.give(now(), [&](WorkerNumber worker, const std::vector<TaskNumber>& tasks) {
          take(slots_[slot_of_.at(worker)], tasks.front());
        });
      }
      start_waiting();
      if (is_over()) break;
      if (!wants_to_feed_now()) wait();
      if (printer_.reader_gone()) stop(128 + SIGPIPE);
    }
    flush();
    if (options_.bar || options_.progress) show_progress(true);
    return status();
  }

 private:
  [[nodiscard]] bool is_over() const { return running_ == 0 && (closing_ || (inputs_ended_ && queue_.held() == 0)); }
  [[nodiscard]] int status() const {
    if (halt_status_) return *halt_status_;
    return static_cast<int>(std::min<std::uint64_t>(failed_, 101));
  }

  [[nodiscard]] bool has_room() const {
    return !inputs_ended_ && !closing_ && queue_.waiting() < slots_.size() && sequence_ - printed_ < outputs_max_;
  }
  [[nodiscard]] bool wants_to_feed_now() const { return has_room() && !inputs_wait_; }

  /// Fills the queue from the inputs, not far ahead of what runs.
  void feed() {
    inputs_wait_ = false;
    while (has_room()) {
      Job job;
      const auto state = inputs_.next(job.values);
      if (state == ValueReader::State::ended) inputs_ended_ = true;
      inputs_wait_ = state == ValueReader::State::waits;
      if (state != ValueReader::State::value) return;
      job.sequence = ++sequence_;
      if (is_done_already(job.sequence)) {
        ++skipped_;
        pass_over(job.sequence);
      } else if (options_.dry_run) {
        printer_.print(commands_.make(job.values, job.sequence, 1).text + "\n");
        ++printed_;
      } else {
        const auto task = queue_.submit({.retries = options_.tries - 1, .timeout = options_.timeout});
        jobs_.emplace(*task, std::move(job));  // the queue has room for more than has_room() lets in
      }
    }
  }

  [[nodiscard]] bool is_done_already(std::uint64_t sequence) const {
    if (options_.resume == Resume::no || !joblog_) return false;
    const auto past = joblog_->past().find(sequence);
    return past != joblog_->past().end() && (options_.resume == Resume::rest || past->second.good());
  }

  void take(Slot& slot, TaskNumber task) {
    slot.task = task;
    slot.job = std::move(jobs_.at(task));
    jobs_.erase(task);
    slot.taken = true;
    slot.stopping = slot.timed_out = false;
    slot.kill_at = Time::max();
    slot.begun = now();
    ++running_;
    start(slot);
  }

  void start(Slot& slot) {
    const auto number = static_cast<std::size_t>(&slot - slots_.data());
    const Command command = commands_.make(slot.job.values, slot.job.sequence, static_cast<unsigned>(number + 1));
    slot.record = {.sequence = slot.job.sequence, .start = wall_seconds(), .command = command.text};
    JobStreams streams{.input = no_input_.get(),
                       .captures = !options_.ungroup,
                       .files = std::move(slot.files),
                       .group = &guard_.group(number)};
    // As GNU Parallel does: the first job may read what nobody else reads.
    if (slot.job.sequence == 1 && !inputs_.reads_standard_input() && ::isatty(STDIN_FILENO) == 0)
      streams.input = STDIN_FILENO;
    try {
      if (options_.verbose) launch::tell_user("", command.text);
      slot.process.emplace(command, options_.shell, environment_.of(slot.job.sequence, number + 1), std::move(streams));
      starts_wait_ = false;
    } catch (const Error& error) {
      if (error.code() == Errc::exhausted && now() - slot.begun < start_wait && !closing_) {
        starts_wait_ = true;
        return;
      }
      launch::tell_user("apfarm", error.what());
      slot.record.exit_value = 255;
      conclude(slot);
    }
  }

  /// Slots whose process could not be started.
  void start_waiting() {
    if (!starts_wait_) return;
    for (Slot& slot : slots_) {
      if (!slot.taken || slot.process) continue;
      if (closing_) {
        slot.taken = false;
        --running_;
      } else {
        start(slot);
      }
    }
    if (closing_) starts_wait_ = false;
  }

  void wait() {
    flush();
    if (options_.bar || options_.progress) show_progress(false);
    std::optional<Time> until = queue_.next_time();
    const auto also = [&](Time time) { until = until ? std::min(*until, time) : time; };
    if (killing_) {
      for (const Slot& slot : slots_) {
        if (slot.process && slot.kill_at != Time::max()) also(slot.kill_at);
      }
    }
    if (starts_wait_) also(now() + start_again);
    std::array<pollfd, 3> ready{pollfd{ends_.get(), POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0},
                                pollfd{has_room() ? inputs_.descriptor() : -1, POLLIN, 0}};
    const timespec left = until ? os_time(std::max(*until - now(), Time{0})) : timespec{};
    if (::ppoll(ready.data(), ready.size(), until ? &left : nullptr, nullptr) < 0 && errno != EINTR)
      throw Error(Errc::failed, fmt::format("cannot wait for jobs: {}", std::strerror(errno)));
    if (ready[1].revents != 0) take_signals();
    if (ready[0].revents != 0) reap();
    pass_time();
  }

  static timespec os_time(Time time) {
    constexpr Time::rep second = 1'000'000'000;
    return {.tv_sec = time.count() / second, .tv_nsec = time.count() % second};
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const bool second = closing_ && halt_status_ && *halt_status_ > 128;
      stop(128 + static_cast<int>(info.ssi_signo));
      for (Slot& slot : slots_) {
        if (second && slot.process) slot.process->signal(SIGKILL);
      }
    }
  }

  /// Ends what runs. Nothing else begins.
  void stop(int status) {
    closing_ = true;
    if (!halt_status_) halt_status_ = status;
    for (Slot& slot : slots_) {
      if (slot.process && !slot.stopping) end_early(slot);
    }
  }

  void end_early(Slot& slot) {
    slot.stopping = true;
    slot.process->signal(SIGTERM);
    slot.process->signal(SIGCONT);  // a stopped one would not hear it
    slot.kill_at = now() + grace;
    killing_ = true;
  }

  void pass_time() {
    const Time time = now();
    Actions actions;
    queue_.tick(time, actions);
    for (const Action& action : actions) {
      Slot& slot = slots_[slot_of_.at(action.worker)];
      if (!slot.process || slot.task != action.task || slot.stopping) continue;
      slot.timed_out = true;
      end_early(slot);
    }
    if (!killing_) return;
    killing_ = false;
    for (Slot& slot : slots_) {
      if (!slot.process || slot.kill_at == Time::max()) continue;
      if (slot.kill_at <= time) {
        slot.process->signal(SIGKILL);
        slot.kill_at = Time::max();
      } else {
        killing_ = true;
      }
    }
  }

  void reap() {
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
        guard_.group(static_cast<std::size_t>(slot - slots_.begin())).store(0, std::memory_order_release);
      }
      int status = 0;
      ::waitpid(info.si_pid, &status, 0);
      if (slot == slots_.end()) continue;
      slot->record.exit_value = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      slot->record.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      if (slot->timed_out) {
        slot->record.exit_value = -1;
        slot->record.signal = SIGTERM;
      }
      conclude(*slot);
    }
  }

  /// The slot's run is over.
  void conclude(Slot& slot) {
    slot.record.runtime = std::chrono::duration<double>(now() - slot.begun).count();
    slot.taken = false;
    --running_;
    Ended ended{std::move(slot.job), std::move(slot.record), std::exchange(slot.process, std::nullopt), slot.timed_out};
    if (ended.process && !options_.ungroup) slot.files = ended.process->unused_files();
    const Outcome outcome = ended.timed_out       ? Outcome::timed_out
                            : ended.record.good() ? Outcome::done
                                                  : Outcome::failed;
    Actions actions;
    const auto verdict = queue_.finished(slot.worker, slot.task, outcome, now() - slot.begun, now(), actions);
    if (slot.stopping && !slot.timed_out) return;  // the session ends: this is not how the job ends
    if (ended.timed_out) {
      launch::tell_user("apfarm", fmt::format("job {} was ended, because it ran longer than --timeout: {}",
                                              ended.job.sequence, ended.record.command));
    }
    if (verdict == Queue::Verdict::again) {
      jobs_.emplace(slot.task, std::move(ended.job));
      return;
    }
    note(ended);
    if (options_.keep_order && ended.job.sequence != printed_ + 1) {
      waiting_outputs_.emplace(ended.job.sequence, std::move(ended));
      return;
    }
    print(ended);
    for (auto next = waiting_outputs_.begin(); next != waiting_outputs_.end() && (next->first == printed_ + 1);
         next = waiting_outputs_.erase(next)) {
      if (next->second)
        print(*next->second);
      else
        ++printed_;
    }
  }

  /// A job that need not run has its turn, too.
  void pass_over(std::uint64_t sequence) {
    if (options_.keep_order && sequence != printed_ + 1) {
      waiting_outputs_.emplace(sequence, std::nullopt);
    } else {
      ++printed_;
    }
  }

  /// Counts the job, and ends the session where --halt says so.
  void note(const Ended& ended) {
    const bool good = ended.record.good();
    ++done_;
    failed_ += good ? 0 : 1;
    const Halt& halt = options_.halt;
    if (halt.when == Halt::When::never || closing_) return;
    const std::uint64_t count = halt.on == Halt::On::failed      ? failed_
                                : halt.on == Halt::On::succeeded ? done_ - failed_
                                                                 : done_;
    if (halt.on == Halt::On::failed && good) return;
    const auto all = static_cast<double>(inputs_.count().value_or(sequence_));
    const bool reached =
        halt.count != 0 ? count >= halt.count : all >= 3 && static_cast<double>(count) >= halt.part * all;
    if (!reached) return;
    if (!good) launch::tell_user("apfarm", fmt::format("this job failed: {}", ended.record.command));
    closing_ = true;
    if (halt.on == Halt::On::failed && halt.count != 0)
      halt_status_ = ended.record.signal != 0 ? 128 + ended.record.signal : ended.record.exit_value & 0xff;
    if (halt.on == Halt::On::failed && halt.count == 0)
      halt_status_ = static_cast<int>(std::ceil(100 * static_cast<double>(failed_) / all));
    if (halt.on == Halt::On::succeeded) halt_status_ = 0;
    if (halt.when == Halt::When::now) {
      for (Slot& slot : slots_) {
        if (slot.process && !slot.stopping) end_early(slot);
      }
    }
  }

  void print(Ended& ended) {
    ++printed_;
    const int output = ended.process ? ended.process->file(JobProcess::output) : -1;
    const int error = ended.process ? ended.process->file(JobProcess::error) : -1;
    ended.record.received = bytes_of_file(output);
    if (options_.json) {
      print_json(ended, output, error);
    } else {
      std::string tag;
      if (options_.tag) tag = fmt::format("{}\t", fmt::join(ended.job.values, " "));
      if (ended.record.received != 0) printer_.print_file(output, STDOUT_FILENO, tag);
      if (bytes_of_file(error) != 0) printer_.print_file(error, STDERR_FILENO, tag);
    }
    if (joblog_) joblog_->add(ended.record);
  }

  void print_json(const Ended& ended, int output, int error) {
    std::string values;
    for (const std::string& value : ended.job.values)
      values += fmt::format("{}\"{}\"", values.empty() ? "" : ",", json_text(value));
    const JobRecord& record = ended.record;
    printer_.print(
        fmt::format("{{\"Seq\":{},\"Host\":\":\",\"Starttime\":{:.3f},\"JobRuntime\":{:.3f},\"Send\":{},"
                    "\"Receive\":{},\"Exitval\":{},\"Signal\":{},\"Command\":\"{}\",\"V\":[{}],\"Stdout\":\"",
                    record.sequence, record.start, record.runtime, record.sent, record.received, record.exit_value,
                    record.signal, json_text(record.command), values));
    printer_.print_json_file(output);
    printer_.print("\",\"Stderr\":\"");
    printer_.print_json_file(error);
    printer_.print("\"}\n");
  }

  /// The journal says what has been printed, and no more.
  void flush() {
    if (printer_.flush() && joblog_) joblog_->flush();
  }

  void show_progress(bool last) {
    const Time time = now();
    if (!last && time - shown_ < milliseconds(100)) return;
    shown_ = time;
    const std::uint64_t ended = done_ + skipped_;
    const auto count = inputs_ended_ ? std::optional(sequence_) : inputs_.count();
    std::string text = fmt::format("{} of {} jobs, {} running, {} failed", ended, count ? std::to_string(*count) : "?",
                                   running_, failed_);
    if (options_.bar && count && *count != 0) {
      const std::uint64_t tenths = ended * 40 / *count;
      text = fmt::format("{:3}% [{:<40}] {}", ended * 100 / *count, std::string(tenths, '#'), text);
    }
    text = fmt::format("\r{}\x1b[K{}", text, last ? "\n" : "");
    static_cast<void>(launch::write_all(STDERR_FILENO, text));
  }

  const CommandTemplate& commands_;
  Inputs& inputs_;
  const SessionOptions& options_;
  os::UniqueFd ends_;
  os::UniqueFd signals_;
  os::UniqueFd no_input_;
  Printer printer_;
  Queue queue_;
  GroupGuard guard_;
  Environment environment_;
  std::vector<Slot> slots_;
  std::unordered_map<WorkerNumber, std::size_t> slot_of_;
  std::unordered_map<TaskNumber, Job> jobs_;                       // that wait
  std::map<std::uint64_t, std::optional<Ended>> waiting_outputs_;  // by sequence; nothing: it need not run
  std::optional<Joblog> joblog_;
  std::uint64_t outputs_max_;
  std::uint64_t sequence_ = 0;
  std::uint64_t printed_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t skipped_ = 0;
  std::size_t running_ = 0;
  std::optional<int> halt_status_;
  bool closing_ = false;
  bool inputs_ended_ = false;
  bool inputs_wait_ = false;
  bool starts_wait_ = false;
  bool killing_ = false;
  Time shown_{};
};

}  // namespace

int run_session(const CommandTemplate& commands, Inputs& inputs, const SessionOptions& options) {
  return Session(commands, inputs, options).run();
}

}  // namespace aplib::farm
