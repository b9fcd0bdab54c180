// SPDX-License-Identifier: MIT
#include "farm/apfarm/session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "aplib/error.hpp"
#include "base/farm_tally.hpp"
#include "base/os/time.hpp"
#include "base/text.hpp"
#include "farm/apfarm/job_runner.hpp"
#include "farm/apfarm/joblog.hpp"
#include "farm/apfarm/printer.hpp"
#include "launch/terminal.hpp"

namespace aplib::farm {

std::optional<Halt> Halt::parse(std::string_view text) {
  if (text == "never" || text == "0") return Halt{};
  if (text == "1") text = "soon,fail=1";
  if (text == "2") text = "now,fail=1";
  if (text == "-1") text = "soon,success=1";
  if (text == "-2") text = "now,success=1";
  const std::string part = fmt::format("soon,fail={}", text);
  if (text.ends_with('%') && text.find('=') == text.npos) text = part;
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

/// Without any host, the session waits for one to come back, but not longer.
constexpr std::chrono::seconds lonely_max{60};
/// Jobs that stand ready for each slot of a far host, which holds several.
constexpr std::size_t ready_for_far = 64;
/// The status when what jobs have printed cannot be written.
constexpr int output_lost = 255;

/// How many outputs may wait for their turn: each is two files. Half of what apfarm does not need itself.
std::uint64_t outputs_max() {
  constexpr rlim_t own = 8;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return std::clamp<std::uint64_t>((std::max(limit.rlim_cur, own) - own) / 4, 1, 4096);
}

struct Job {
  std::uint64_t sequence = 0;
  std::vector<std::string> values{};
  unsigned runs = 0;  // at this time
};

/// A job that has ended, until it is printed.
struct Ended {
  Job job;
  JobRecord record;
  JobFiles files{};
  bool timed_out = false;
};

/// A run of a job, which a host has.
struct Given {
  TaskNumber task = 0;
  JobRecord record{};
  bool stopping = false;
  bool timed_out = false;
};

/// A worker of the queue: where one job runs at a time.
struct Slot {
  JobHost* host = nullptr;
  std::size_t place = 0;  // of the host's
  unsigned number = 0;    // {%}
  std::deque<Given> jobs{};
};

struct Host {
  std::unique_ptr<JobHost> host;
  std::vector<WorkerNumber> workers{};  // by place; none: it has not come, or is lost
  bool was_lost = false;
};

class Session {
 public:
  Session(const CommandTemplate& commands, Inputs& inputs, const SessionOptions& options,
          std::vector<std::unique_ptr<JobHost>> hosts)
      : commands_(commands),
        inputs_(inputs),
        options_(options),
        signals_(signals_as_file({SIGINT, SIGTERM, SIGHUP})),
        printer_(signals_.get()),
        is_far_(hosts.front()->name() != ":"),
        queue_(
            {.batch_max = is_far_ ? std::uint32_t{ready_for_far / 2} : 1, .copies = options.copies, .copies_max = 1}),
        outputs_max_(options.keep_order ? outputs_max() : UINT64_MAX),
        tally_("apfarm", options.title) {
    ::signal(SIGPIPE, SIG_IGN);
    const bool resumes = options.resume != Resume::no;
    if (!options.joblog.empty() && (resumes || !options.dry_run))
      joblog_.emplace(options.joblog, resumes, !options.dry_run);
    for (std::unique_ptr<JobHost>& host : hosts) hosts_.push_back({.host = std::move(host)});
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int run() {
    try {
      run_jobs();
    } catch (const Error&) {
      flush();  // what has been done is done
      throw;
    }
    tell_output_problem();
    if (shows_progress()) show_progress(true);
    show_counts();
    tally_.end(status(), reason());
    return status();
  }

 private:
  void run_jobs() {
    if (!options_.dry_run) work_hosts();
    while (!is_over()) {
      feed();
      if (!closing_) {
        queue_.give(time_now(), [&](WorkerNumber worker, const std::vector<TaskNumber>& tasks) {
          for (const TaskNumber task : tasks) give(slots_.at(worker), task);
        });
      }
      if (is_over()) break;
      show_counts();
      if (!wants_to_feed_now()) wait();
      if (printer_.problem() != 0) stop(output_status());
    }
    flush();
  }

  [[nodiscard]] int output_status() const { return printer_.reader_gone() ? 128 + SIGPIPE : output_lost; }

  void tell_output_problem() {
    if (printer_.problem() == 0) return;
    halt_status_ = output_status();
    if (printer_.reader_gone()) return;  // as with other programs
    launch::tell_user("apfarm", fmt::format("what jobs have printed cannot be written: {}; make room there, or write "
                                            "elsewhere; --joblog with --resume runs again what is lost",
                                            std::strerror(printer_.problem())));
  }

  /// What still runs when all jobs have ended, is of no use, and ends with its host's work.
  [[nodiscard]] bool is_over() const { return closing_ ? running_ == 0 : inputs_ended_ && queue_.held() == 0; }
  [[nodiscard]] int status() const {
    if (halt_status_) return *halt_status_;
    if (options_.halt.part != 0 && done_ != 0)
      return static_cast<int>(std::ceil(100 * static_cast<double>(failed_) / static_cast<double>(all())));
    return static_cast<int>(std::min<std::uint64_t>(failed_, 101));
  }

  /// The number of jobs, as far as it is known.
  [[nodiscard]] std::uint64_t all() const { return inputs_.count().value_or(sequence_); }

  [[nodiscard]] std::string reason() const {
    if (halt_status_ && *halt_status_ > 128 && *halt_status_ != output_lost)
      return fmt::format("ended by signal {}", *halt_status_ - 128);
    if (failed_ == 0) return {};
    return fmt::format("{} of {} jobs failed{}", failed_, done_, halt_status_ ? ", and --halt ended the rest" : "");
  }

  /// For apctl web.
  void show_counts() noexcept {
    const std::uint64_t total = inputs_ended_ ? sequence_ : inputs_.count().value_or(0);
    const std::uint64_t begun = done_ + skipped_ + running_;
    tally_.set({.workers = slots_.size(),
                .queued = total > begun ? total - begun : queue_.waiting(),
                .running = running_,
                .done = done_ - failed_,
                .failed = failed_,
                .total = total - std::min(total, skipped_)});
  }

  [[nodiscard]] bool has_room() const {
    const std::size_t ready = std::max<std::size_t>(slots_.size(), 1) * (is_far_ ? ready_for_far : 1);
    if (options_.delay != Time{0} && (queue_.waiting() != 0 || time_now() < next_start_)) return false;
    return !inputs_ended_ && !closing_ && queue_.waiting() < ready && sequence_ - printed_ < outputs_max_;
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
        printer_.print(tag_of(job) + commands_.make(job.values, job.sequence, 1).text + "\n");
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

  void give(Slot& slot, TaskNumber task) {
    Job& job = jobs_.at(task);
    Command command = commands_.make(job.values, job.sequence, slot.number);
    slot.jobs.push_back(
        {.task = task, .record = {.sequence = job.sequence, .host = slot.host->name(), .command = command.text}});
    ++running_;
    ++job.runs;
    next_start_ = time_now() + options_.delay;
    if (options_.verbose) launch::tell_user("", command.text);
    slot.host->give(slot.place, {.task = task,
                                 .sequence = job.sequence,
                                 .slot_number = slot.number,
                                 .command = std::move(command),
                                 .files = files_of(job, slot)});
  }

  [[nodiscard]] JobFileNames files_of(const Job& job, const Slot& slot) const {
    const auto names = [&](const std::vector<CommandTemplate>& templates) {
      std::vector<std::string> made;
      for (const CommandTemplate& each : templates)
        made.push_back(each.make(job.values, job.sequence, slot.number).text);
      return made;
    };
    const FileTemplates& files = options_.files;
    return {.sends = names(files.sends), .returns = names(files.returns), .cleanup = files.cleanup};
  }

  [[nodiscard]] bool shows_progress() const { return options_.bar || options_.progress || options_.eta; }

  void wait() {
    flush();
    if (shows_progress()) show_progress(false);
    std::optional<Time> until = queue_.next_time();
    const auto also = [&](std::optional<Time> time) {
      if (time) until = until ? std::min(*until, *time) : time;
    };
    waits_.clear();
    waits_.push_back({signals_.get(), POLLIN, 0});
    waits_.push_back({has_room() ? inputs_.descriptor() : -1, POLLIN, 0});
    for (const Host& host : hosts_) {
      host.host->add_waits(waits_);
      waits_end_.push_back(waits_.size());
      also(host.host->next_time());
    }
    if (lonely_since_) also(*lonely_since_ + lonely_max);
    if (options_.delay != Time{0} && !inputs_ended_ && queue_.waiting() == 0) also(next_start_);
    const timespec left = os::timespec_of(until.value_or(Time{0}) - time_now());
    if (::ppoll(waits_.data(), waits_.size(), until ? &left : nullptr, nullptr) < 0) {
      if (errno != EINTR) throw Error(Errc::failed, fmt::format("cannot wait for jobs: {}", std::strerror(errno)));
      for (pollfd& each : waits_) each.revents = 0;
    }
    if (waits_[0].revents != 0) take_signals();
    work_hosts();
    pass_time();
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const bool second = closing_ && halt_status_ && *halt_status_ > 128;
      stop(128 + static_cast<int>(info.ssi_signo));
      if (second) stop_all(Stop::kill);
    }
  }

  /// Ends what runs. Nothing else begins.
  void stop(int status) {
    closing_ = true;
    if (!halt_status_) halt_status_ = status;
    stop_all(Stop::term);
  }

  void stop_all(Stop how) {
    for (auto& [worker, slot] : slots_) {
      for (Given& given : slot.jobs) {
        given.stopping = given.stopping || how == Stop::term;
        slot.host->stop(slot.place, given.task, how);
      }
    }
  }

  void pass_time() {
    Actions actions;
    queue_.tick(time_now(), actions);
    stop_runs(actions);
  }

  void stop_runs(const Actions& actions) {
    for (const Action& action : actions) {
      const auto slot = slots_.find(action.worker);
      if (action.kind != Action::Kind::stop || slot == slots_.end()) continue;
      const auto given = std::ranges::find(slot->second.jobs, action.task, &Given::task);
      if (given == slot->second.jobs.end() || given->stopping) continue;
      given->stopping = true;
      given->timed_out = action.outcome == Outcome::timed_out;
      slot->second.host->stop(slot->second.place, given->task, Stop::term);
    }
  }

  void work_hosts() {
    std::size_t begin = 2;  // behind the session's own
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      std::span<const pollfd> waits;
      if (i < waits_end_.size()) waits = std::span(waits_).subspan(begin, waits_end_[i] - begin);
      begin += waits.size();
      HostNews news;
      hosts_[i].host->work(time_now(), waits, news);
      if (news.came) welcome(hosts_[i], *news.came);
      for (JobEnd& job_end : news.ends) conclude(hosts_[i], job_end);
      if (news.lost) lose(hosts_[i], *news.lost);
    }
    waits_end_.clear();
    look_for_hosts();
  }

  void welcome(Host& host, std::size_t slots) {
    for (std::size_t place = 0; place < slots; ++place) {
      const WorkerNumber worker = queue_.join();
      unsigned number = static_cast<unsigned>(slots_.size() + 1);
      if (!free_numbers_.empty()) number = free_numbers_.extract(free_numbers_.begin()).value();
      slots_[worker] = {.host = host.host.get(), .place = place, .number = number};
      host.workers.push_back(worker);
    }
    ever_came_ = true;
  }

  /// What it had runs elsewhere, or again when it is back.
  void lose(Host& host, const std::string& why) {
    launch::tell_user("apfarm", launch::printable(why));
    host.was_lost = true;
    for (const WorkerNumber worker : host.workers) {
      const auto found = slots_.find(worker);
      Slot slot = std::move(found->second);
      slots_.erase(found);
      free_numbers_.insert(slot.number);
      running_ -= slot.jobs.size();
      Actions actions;
      std::unordered_map<TaskNumber, JobRecord> records;
      for (Given& given : slot.jobs) {
        if (const auto job = jobs_.find(given.task); job != jobs_.end()) --job->second.runs;
        records.emplace(given.task, std::move(given.record));
      }
      queue_.died(worker, actions);
      stop_runs(actions);
      for (const Action& action : actions) {
        if (action.kind == Action::Kind::ended) give_up(action, std::move(records.at(action.task)));
      }
    }
    host.workers.clear();
  }

  /// A job that has ended with its host.
  void give_up(const Action& action, JobRecord record) {
    const auto job = jobs_.find(action.task);
    Ended ended{.job = std::move(job->second), .record = std::move(record)};
    jobs_.erase(job);
    if (closing_) return;
    ended.record.start = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    ended.timed_out = action.outcome == Outcome::timed_out;
    if (!ended.timed_out) {
      ended.record.exit_value = 255;
      launch::tell_user("apfarm", fmt::format("job {} is given up, because each host that ran it was lost: {}",
                                              ended.job.sequence, ended.record.command));
    }
    finish(std::move(ended));
  }

  void look_for_hosts() {
    if (!slots_.empty() || closing_ || !std::ranges::all_of(hosts_, &Host::was_lost)) {
      lonely_since_.reset();
      return;
    }
    if (!lonely_since_) lonely_since_ = time_now();
    if (ever_came_ && time_now() - *lonely_since_ < lonely_max) return;
    throw Error(Errc::failed, ever_came_ ? "all hosts are lost, and none has come back for a minute: apctl up repairs "
                                           "the pool, and --joblog with --resume goes on from here"
                                         : "no host of the pool can be reached");
  }

  /// A run is over.
  void conclude(const Host& host, JobEnd& end) {
    if (end.slot >= host.workers.size()) return;
    const WorkerNumber worker = host.workers[end.slot];
    Slot& slot = slots_.at(worker);
    const auto found = std::ranges::find(slot.jobs, end.task, &Given::task);
    if (found == slot.jobs.end()) return;
    Given given = std::move(*found);
    slot.jobs.erase(found);
    --running_;
    Ended ended{{}, std::move(given.record), std::move(end.files), given.timed_out};
    ended.record.start = end.start;
    ended.record.runtime = std::chrono::duration<double>(end.ran).count();
    ended.record.exit_value = end.exit_value;
    ended.record.signal = end.signal;
    const Outcome outcome = ended.timed_out                    ? Outcome::timed_out
                            : ended.record.good() && end.begun ? Outcome::done
                                                               : Outcome::failed;
    Actions actions;
    const auto verdict = queue_.finished(worker, given.task, outcome, end.ran, time_now(), actions);
    stop_runs(actions);
    if (verdict == Queue::Verdict::stale) return;
    if (!end.problem.empty()) launch::tell_user("apfarm", launch::printable(end.problem));
    const auto job = jobs_.find(given.task);
    --job->second.runs;
    // The session ends: this is not how the job ends.
    if (closing_ && (!end.begun || (given.stopping && !given.timed_out))) return;
    if (verdict == Queue::Verdict::again) {
      if (ended.timed_out) tell_timeout(ended);
      return;
    }
    ended.job = std::move(job->second);
    jobs_.erase(job);
    finish(std::move(ended));
  }

  static void tell_timeout(const Ended& ended) {
    launch::tell_user("apfarm", fmt::format("job {} was ended, because it ran longer than --timeout: {}",
                                            ended.record.sequence, ended.record.command));
  }

  /// The job has ended.
  void finish(Ended ended) {
    if (ended.timed_out) {
      tell_timeout(ended);
      ended.record.exit_value = -1;
      ended.record.signal = SIGTERM;
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
    if (!good) tally_.note_failure(failure_text(ended));
    const Halt& halt = options_.halt;
    if (halt.when == Halt::When::never || closing_) return;
    const std::uint64_t count = halt.on == Halt::On::failed      ? failed_
                                : halt.on == Halt::On::succeeded ? done_ - failed_
                                                                 : done_;
    if (halt.on == Halt::On::failed && good) return;
    const bool reached =
        halt.count != 0 ? count >= halt.count : static_cast<double>(count) >= halt.part * static_cast<double>(all());
    if (!reached) return;
    if (!good) launch::tell_user("apfarm", fmt::format("this job failed: {}", ended.record.command));
    closing_ = true;
    if (halt.on == Halt::On::failed && failed_ == 1 && (halt.count == 1 || halt.when == Halt::When::now))
      halt_status_ = ended.record.signal != 0 ? 128 + ended.record.signal : ended.record.exit_value & 0xff;
    if (halt.on == Halt::On::succeeded) halt_status_ = 0;
    stop_all(halt.when == Halt::When::now ? Stop::term : Stop::unless_begun);
  }

  static std::string failure_text(const Ended& ended) {
    const JobRecord& record = ended.record;
    const std::string how = ended.timed_out      ? "ran longer than --timeout"
                            : record.signal != 0 ? fmt::format("was ended by signal {}", record.signal)
                                                 : fmt::format("ended with {}", record.exit_value);
    return fmt::format("job {}{} {}: {}", record.sequence, record.host == ":" ? "" : " on " + record.host, how,
                       record.command);
  }

  void print(Ended& ended) {
    ++printed_;
    const int output = ended.files[JobProcess::output].get();
    const int error = ended.files[JobProcess::error].get();
    ended.record.received = bytes_of_file(output);
    if (options_.results) {
      write_results(ended, output, error);
    } else if (options_.json) {
      print_json(ended, output, error);
    } else {
      const std::string tag = tag_of(ended.job);
      if (options_.prints_commands) printer_.print(tag + ended.record.command + "\n");
      if (ended.record.received != 0) printer_.print_file(output, STDOUT_FILENO, tag);
      if (bytes_of_file(error) != 0) printer_.print_file(error, STDERR_FILENO, tag);
    }
    if (joblog_) joblog_->add(ended.record);
  }

  [[nodiscard]] std::string tag_of(const Job& job) const {
    return options_.tag ? options_.tag->make(job.values, job.sequence, 1).text + '\t' : "";
  }

  /// Files with what the job has written, and with its number.
  void write_results(const Ended& ended, int output, int error) {
    const Results& results = *options_.results;
    std::string place = results.place.make(ended.job.values, ended.job.sequence, 1).text;
    const bool begins_names = !results.place.is_constant() && !place.ends_with('/');
    if (results.place.is_constant()) {
      for (std::size_t i = 0; i < ended.job.values.size(); ++i)
        place += "/" + file_name(name_of_value(i)) + "/" + file_name(ended.job.values[i]);
    }
    const std::filesystem::path path = begins_names ? place : place + "/";
    std::error_code problem;
    std::filesystem::create_directories(path.parent_path(), problem);
    if (problem)
      throw Error(Errc::failed, fmt::format("--results: cannot make the folder {}: {}", path.parent_path().string(),
                                            problem.message()));
    const auto write = [&](const char* name, const char* ending, std::string_view text, int copied) {
      const std::string file = begins_names ? path.string() + ending : (path / name).string();
      const os::UniqueFd descriptor(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!descriptor || !os::write_all(descriptor.get(), text) || !copy_file(copied, descriptor.get()))
        throw Error(Errc::failed, fmt::format("--results: cannot write {}: {}", file, std::strerror(errno)));
    };
    write("stdout", "", options_.prints_commands ? ended.record.command + "\n" : "", output);
    write("stderr", ".err", "", error);
    write("seq", ".seq", std::to_string(ended.job.sequence), -1);
  }

  /// That of its place in its record.
  [[nodiscard]] std::string name_of_value(std::size_t place) const {
    if (inputs_.values_in_record() != 0) place %= inputs_.values_in_record();
    const std::vector<std::string>& names = options_.results->names;
    return place < names.size() ? names[place] : std::to_string(place + 1);
  }

  /// A value as one name, as GNU Parallel writes it.
  static std::string file_name(const std::string& value) {
    if (value == "." || value == "..")
      throw Error(
          Errc::failed,
          fmt::format("--results: the value {} is no folder of its own; use a place such as DIR/{{#}}/", value));
    std::string name;
    for (const char c : value) {
      if (c == '/') name += "\\_";
      if (c == '\t') name += "\\t";
      if (c == '\\') name += "\\\\";
      if (c != '/' && c != '\t' && c != '\\') name += c;
    }
    return name;
  }

  void print_json(const Ended& ended, int output, int error) {
    std::string values;
    for (const std::string& value : ended.job.values)
      values += fmt::format("{}\"{}\"", values.empty() ? "" : ",", text::json_text(value));
    const JobRecord& record = ended.record;
    printer_.print(
        fmt::format("{{\"Seq\":{},\"Host\":\"{}\",\"Starttime\":{:.3f},\"JobRuntime\":{:.3f},\"Send\":{},"
                    "\"Receive\":{},\"Exitval\":{},\"Signal\":{},\"Command\":\"{}\",\"V\":[{}],\"Stdout\":\"",
                    record.sequence, text::json_text(record.host), record.start, record.runtime, record.sent,
                    record.received, record.exit_value, record.signal, text::json_text(record.command), values));
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
    const Time time = time_now();
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
    if (options_.eta && count && done_ != 0) {
      const double each = std::chrono::duration<double>(time - began_).count() / static_cast<double>(done_);
      text += fmt::format(", {:.0f} s left", each * static_cast<double>(*count - std::min(*count, ended)));
    }
    text = fmt::format("\r{}\x1b[K{}", text, last ? "\n" : "");
    static_cast<void>(launch::write_all(STDERR_FILENO, text));
  }

  const CommandTemplate& commands_;
  Inputs& inputs_;
  const SessionOptions& options_;
  os::UniqueFd signals_;
  Printer printer_;
  const bool is_far_;
  Queue queue_;
  std::vector<Host> hosts_;
  std::unordered_map<WorkerNumber, Slot> slots_;
  std::set<unsigned> free_numbers_;  // of slots
  std::vector<pollfd> waits_;
  std::vector<std::size_t> waits_end_;                             // by host, in waits_
  std::unordered_map<TaskNumber, Job> jobs_;                       // all that the queue holds
  std::map<std::uint64_t, std::optional<Ended>> waiting_outputs_;  // by sequence; nothing: it need not run
  std::optional<Joblog> joblog_;
  std::uint64_t outputs_max_;
  FarmTally tally_;
  std::uint64_t sequence_ = 0;
  std::uint64_t printed_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t skipped_ = 0;
  std::size_t running_ = 0;
  std::optional<int> halt_status_;
  std::optional<Time> lonely_since_;
  bool ever_came_ = false;
  bool closing_ = false;
  bool inputs_ended_ = false;
  bool inputs_wait_ = false;
  Time shown_{};
  const Time began_ = time_now();
  Time next_start_{};
};

}  // namespace

int run_session(const CommandTemplate& commands, Inputs& inputs, const SessionOptions& options,
                std::vector<std::unique_ptr<JobHost>> hosts) {
  return Session(commands, inputs, options, std::move(hosts)).run();
}

}  // namespace aplib::farm
