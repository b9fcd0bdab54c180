// SPDX-License-Identifier: MIT
#include "farm/apfarm/host_worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/time.hpp"
#include "farm/apfarm/host_messages.hpp"
#include "farm/apfarm/job_runner.hpp"
#include "farm/apfarm/moved_files.hpp"
#include "launch/files/manifest.hpp"
#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"

namespace aplib::farm {

namespace files = launch::files;

namespace {

/// Outputs that may wait for their way to apfarm: each is two files.
constexpr std::size_t unsent_max = 128;
/// Bounds of the time between beats, whatever apfarm says.
constexpr Time pause_least = std::chrono::milliseconds(25);
constexpr Time pause_most = std::chrono::hours(1);

/// The end of a job on its way.
struct Unsent {
  JobEnd end;
  std::array<off_t, 2> sent{};  // of its files
};

/// A job with files of its own.
struct MovingJob {
  RunJob job{};
  std::optional<files::Receiver> receiver{};  ///< Before it begins, while they come.
  std::shared_ptr<files::Manifest> returned{};
  std::vector<files::Entry> came{};       ///< What is to be removed of them afterwards.
  std::set<std::string> were_there{};     ///< What it returns, before it began.
  std::optional<files::Sender> sender{};  ///< When it has ended, while they go.
  JobEnd end{};                           ///< How; told when they have gone.
};

class Worker {
 public:
  Worker(os::UniqueFd in, os::UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {
    for (const int fd : {in_.get(), out_.get()}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }

  /// Until apfarm is gone.
  void run() {
    while (listen()) {
      if (runner_) {
        HostNews news;
        runner_->work(time_now(), {}, news);
        for (JobEnd& end : news.ends) conclude(std::move(end));
      }
      if (begin_ && bytes_.empty() && time_now() - said_ >= beat_pause_) say(Beat{});
      if (!speak()) return;
      if (runner_) runner_->pause(unsent_.size() >= unsent_max);
      wait();
    }
  }

 private:
  template <class Message>
  void say(const Message& message) {
    append_message(bytes_, message);
    said_ = time_now();
  }

  /// False: nobody speaks any more.
  bool listen() {
    const ssize_t count = ::read(in_.get(), piece_.data(), piece_.size());
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (count < 0) return true;
    stream_.add(std::span(piece_).first(static_cast<std::size_t>(count)));
    while (const auto type = stream_.next_type()) {
      if (!take(static_cast<WorkMessage>(*type)) || stream_.bad())
        throw Error(Errc::failed, "what came is no message of an apfarm of this version");
    }
    return true;
  }

  bool take(WorkMessage type) {
    if (type == WorkMessage::begin_work) {
      const auto begin = stream_.next<BeginWork>();
      return begin && !begin_ && begin->version == worker_version && take_begin(*begin);
    }
    if (type == WorkMessage::file_piece) {
      const auto piece = stream_.next<FilePiece>();
      return piece && files_ && take_files(piece->bytes);
    }
    if (type == WorkMessage::run_job) {
      auto job = stream_.next<RunJob>();
      if (!job || !runner_ || job->slot >= slots_) return false;
      if (job->has_files || !job->returns.empty()) {
        moving_.erase({job->task, job->slot});
        MovingJob& moving = moving_[{job->task, job->slot}];
        moving.job = *job;
        if (job->has_files) {
          moving.receiver.emplace(receiver_settings(job->cleanup));
          return true;
        }
        begin(moving);
        return true;
      }
      give(std::move(*job));
      return true;
    }
    if (type == WorkMessage::job_file) {
      const auto piece = stream_.next<JobFile>();
      if (!piece) return false;
      const auto moving = moving_.find({piece->task, piece->slot});
      if (moving != moving_.end()) take_job_file(moving, piece->bytes);
      return true;
    }
    if (type == WorkMessage::stop_job) {
      const auto stop = stream_.next<StopJob>();
      if (!stop || !runner_) return false;
      const auto moving = moving_.find({stop->task, stop->slot});
      if (moving != moving_.end() && moving->second.receiver) {
        unsent_.push_back({.end = {.slot = stop->slot, .task = stop->task}});
        moving_.erase(moving);
      } else {
        runner_->stop(stop->slot, stop->task, stop->how);
      }
      return true;
    }
    return false;
  }

  using Moving = std::map<std::pair<TaskNumber, std::size_t>, MovingJob>;

  /// `cleanup`: what is new is removed afterwards. Else parts of files stay, too, when the way to apfarm is lost.
  [[nodiscard]] static files::Receiver::Settings receiver_settings(bool cleanup) {
    return {.folder = ".",
            .existing = files::Existing::replace,
            .resume = !cleanup,
            .host = own_host_id(),
            .notes_new = cleanup};
  }

  void give(RunJob job) {
    runner_->give(job.slot, {.task = job.task,
                             .sequence = job.sequence,
                             .slot_number = job.slot_number,
                             .command = {.text = std::move(job.text), .words = std::move(job.words)}});
  }

  void take_job_file(Moving::iterator at, std::span<const std::byte> bytes) {
    MovingJob& moving = at->second;
    if (moving.sender) moving.sender->take(bytes);
    if (!moving.receiver) return;
    moving.receiver->take(bytes);
    if (const auto reply = moving.receiver->reply(); !reply.empty())
      say(JobFile{.task = moving.job.task, .slot = moving.job.slot, .bytes = reply});
    if (!moving.receiver->ended()) return;
    const files::Outcome& outcome = moving.receiver->outcome();
    if (!outcome.good()) {
      unsent_.push_back({.end = {.slot = moving.job.slot,
                                 .task = moving.job.task,
                                 .exit_value = not_started_value,
                                 .problem = fmt::format("{}", fmt::join(outcome.problems, "; "))}});
      moving_.erase(at);
      return;
    }
    if (moving.job.cleanup) moving.came = moving.receiver->new_entries();
    moving.receiver.reset();
    begin(moving);
  }

  /// What the job is to return, and is there already, is not removed in the end.
  void begin(MovingJob& moving) {
    const auto found = moving.job.cleanup ? manifest_of_names(moving.job.returns) : nullptr;
    if (found) {
      for (const files::Entry& entry : found->entries) moving.were_there.insert(entry.path);
    }
    give(moving.job);
  }

  /// A job has ended here. What it is to return goes first.
  void conclude(JobEnd end) {
    const auto at = moving_.find({end.task, end.slot});
    if (at == moving_.end()) {
      unsent_.push_back({.end = std::move(end)});
      return;
    }
    MovingJob& moving = at->second;
    moving.end = std::move(end);
    moving.returned = manifest_of_names(moving.job.returns);
    const std::vector<std::string> problems = std::exchange(moving.returned->problems, {});
    if (moving.end.begun && !problems.empty()) spoil(moving.end, problems);
    if (!moving.end.begun || moving.returned->entries.empty()) return tell_moved(at);
    moving.sender.emplace(moving.returned, files::Sender::Settings{});
  }

  /// A job that has done well has failed nevertheless; one that has failed may lack what it would have made.
  static void spoil(JobEnd& end, const std::vector<std::string>& problems) {
    if (end.exit_value != 0 || end.signal != 0) return;
    end.exit_value = not_started_value;
    end.problem = fmt::format("{}", fmt::join(problems, "; "));
  }

  void tell_moved(Moving::iterator at) {
    MovingJob& moving = at->second;
    remove_files(moving.came);
    unsent_.push_back({.end = std::move(moving.end)});
    moving_.erase(at);
  }

  static void remove_made(const MovingJob& moving) {
    std::vector<files::Entry> made = moving.returned->entries;
    std::erase_if(made, [&](const files::Entry& entry) { return moving.were_there.contains(entry.path); });
    remove_files(made);
  }

  /// The next piece of what jobs return, one job after the other where none waits for an answer.
  void move_files() {
    for (auto at = moving_.begin(); at != moving_.end() && bytes_.empty();) {
      const auto each = at++;
      MovingJob& moving = each->second;
      if (!moving.sender) continue;
      if (moving.sender->ended()) {
        const files::Outcome& outcome = moving.sender->outcome();
        if (!outcome.good()) spoil(moving.end, outcome.problems);
        if (moving.job.cleanup && outcome.good() && outcome.kept == 0) remove_made(moving);
        tell_moved(each);
      } else if (const auto piece = moving.sender->next(); !piece.empty()) {
        say(JobFile{.task = moving.job.task, .slot = moving.job.slot, .bytes = piece});
      }
    }
  }

  bool take_begin(const BeginWork& begin) {
    const auto silence = static_cast<Time::rep>(std::min<std::uint64_t>(begin.silence, INT64_MAX));
    beat_pause_ = std::clamp(Time(silence / beats_in_silence), pause_least, pause_most);
    begin_ = begin;
    if (begin.has_files) {
      files_.emplace(receiver_settings(false));
    } else {
      make_ready();
    }
    return true;
  }

  bool take_files(std::span<const std::byte> bytes) {
    files_->take(bytes);
    if (const auto reply = files_->reply(); !reply.empty()) say(FilePiece{reply});
    if (!files_->ended()) return true;
    const std::vector<std::string>& problems = files_->outcome().problems;
    if (!problems.empty()) throw Error(Errc::failed, fmt::format("{}", fmt::join(problems, "\n")));
    files_.reset();
    make_ready();
    return true;
  }

  void make_ready() {
    slots_ = slots_of(begin_->jobs);
    const std::string shell = begin_->shell.empty() ? usual_shell() : begin_->shell;
    runner_.emplace(JobRunner::Settings{.slots = slots_,
                                        .shell = shell,
                                        .owner = begin_->owner,
                                        .cells = begin_->cells,
                                        .nice = begin_->nice,
                                        .entry = begin_->entry});
    say(WorkerReady{.slots = static_cast<std::uint32_t>(slots_)});
  }

  /// Tells what has ended, as far as it is heard now. False: nobody hears it any more.
  bool speak() {
    for (;;) {
      while (sent_ < bytes_.size()) {
        const ssize_t count = ::write(out_.get(), bytes_.data() + sent_, bytes_.size() - sent_);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno == EAGAIN;
        sent_ += static_cast<std::size_t>(count);
        said_ = time_now();
      }
      bytes_.clear();
      sent_ = 0;
      move_files();
      while (!unsent_.empty() && bytes_.size() < output_piece) tell(unsent_.front());
      if (bytes_.empty()) return true;
    }
  }

  /// The next piece of its output; behind the last one, its end, with which it is told.
  void tell(Unsent& unsent) {
    const JobEnd& end = unsent.end;
    for (const auto stream : {JobOutput::Stream::output, JobOutput::Stream::error}) {
      const auto i = static_cast<std::size_t>(stream);
      if (!end.files[i]) continue;
      const ssize_t count = ::pread(end.files[i].get(), output_.data(), output_.size(), unsent.sent[i]);
      if (count <= 0) continue;
      unsent.sent[i] += count;
      const auto bytes = std::span<const std::byte>(output_).first(static_cast<std::size_t>(count));
      return say(JobOutput{.task = end.task, .stream = stream, .bytes = bytes});
    }
    say(JobEnded{.task = end.task,
                 .slot = static_cast<std::uint32_t>(end.slot),
                 .begun = end.begun,
                 .start = static_cast<std::uint64_t>(end.start * 1e9),
                 .ran = static_cast<std::uint64_t>(end.ran.count()),
                 .exit_value = static_cast<std::uint8_t>(end.exit_value),
                 .signal = static_cast<std::uint8_t>(end.signal),
                 .problem = end.problem});
    unsent_.pop_front();
  }

  void wait() {
    waits_.assign({{in_.get(), POLLIN, 0}, {bytes_.empty() ? -1 : out_.get(), POLLOUT, 0}});
    // A beat that nobody takes need not be said.
    Time until = bytes_.empty() ? said_ + beat_pause_ : time_now() + beat_pause_;
    if (runner_) {
      runner_->add_waits(waits_);
      until = std::min(until, runner_->next_time().value_or(Time::max()));
    }
    const timespec left = os::timespec_of(until - time_now());
    static_cast<void>(::ppoll(waits_.data(), waits_.size(), &left, nullptr));
  }

  os::UniqueFd in_;
  os::UniqueFd out_;
  std::optional<BeginWork> begin_;
  std::optional<files::Receiver> files_;  // while they come
  std::optional<JobRunner> runner_;       // when they are there
  std::size_t slots_ = 0;
  Time beat_pause_ = pause_most;
  Time said_ = time_now();
  MessageStream stream_;
  std::deque<Unsent> unsent_;
  Moving moving_;
  launch::wire::Bytes bytes_;
  std::size_t sent_ = 0;  // of bytes_
  launch::wire::Bytes piece_ = launch::wire::Bytes(std::size_t{256} << 10);
  launch::wire::Bytes output_ = launch::wire::Bytes(output_piece);
  std::vector<pollfd> waits_;
};

}  // namespace

int run_worker() {
  // Jobs, and whoever prints, do not find the connection.
  os::UniqueFd in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  os::UniqueFd out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const os::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!in || !out || !nothing) os::refuse_descriptor("a worker's streams");
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) ::dup2(nothing.get(), fd);
  ::signal(SIGPIPE, SIG_IGN);
  Worker(std::move(in), std::move(out)).run();
  return 0;
}

}  // namespace aplib::farm
