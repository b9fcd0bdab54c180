// SPDX-License-Identifier: MIT
#include "farm/apfarm/remote_host.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>
#include <stop_token>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/own_folder.hpp"
#include "base/os/thread.hpp"
#include "base/text.hpp"
#include "farm/apfarm/host_messages.hpp"
#include "farm/apfarm/job_runner.hpp"
#include "farm/apfarm/moved_files.hpp"
#include "launch/files/manifest.hpp"
#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"
#include "launch/pool/file_tree.hpp"
#include "launch/pool/pool.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/terminal.hpp"

namespace aplib::farm {
namespace {

using launch::start::Started;
using std::chrono::milliseconds;

/// Between attempts to reach a host that is lost: the first pause, and the longest.
constexpr Time again_least = milliseconds(500);
constexpr Time again_most = std::chrono::seconds(8);
/// When the connection of a worker has closed, its keeper says why, unless it has gone, too.
constexpr Time last_words_wait = std::chrono::seconds(1);
constexpr std::size_t worker_slots_max = 1'000'000;

/// Files that all hosts need, on their way from host to host (launch/pool/file_tree.hpp), by a thread of its own. Who
/// does not get them so gets them with its worker.
class PassedFiles {
 public:
  PassedFiles(const launch::pool::Pool& pool, std::vector<std::size_t> hosts,
              std::shared_ptr<const launch::files::Manifest> manifest, const std::string& folder)
      : pool_(pool), hosts_(std::move(hosts)) {
    if (hosts_.empty()) return;
    for (const std::size_t host : hosts_) states_[host].state = State::coming;
    launch::pool::FilesToSend what{.manifest = std::move(manifest),
                                   .folder = ".",
                                   .existing = launch::files::Existing::replace,
                                   .below = folder,
                                   .complain = [](const std::string&) {},
                                   .over = [this](std::size_t host, bool good) { end(host, good); },
                                   .stop = stop_.get_token()};
    thread_ = os::quiet_thread("apfarm-files", [this, what = std::move(what)] {
      try {
        static_cast<void>(launch::pool::send_files(pool_, hosts_, what));
      } catch (const std::exception&) {
      }
      for (const std::size_t host : hosts_) end(host, false);
    });
  }
  ~PassedFiles() {
    stop_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  PassedFiles(const PassedFiles&) = delete;
  PassedFiles& operator=(const PassedFiles&) = delete;

  /// Readable when a host's files come no more; -1: they do not.
  [[nodiscard]] int coming(std::size_t host) const {
    const auto found = states_.find(host);
    return found != states_.end() && found->second.state == State::coming ? found->second.event.get() : -1;
  }
  /// Once: a worker that is started later looks itself.
  [[nodiscard]] bool take(std::size_t host) {
    const auto found = states_.find(host);
    return found != states_.end() && found->second.state.exchange(State::none) == State::there;
  }

 private:
  enum class State : std::uint8_t { none, coming, there };
  struct Host {
    std::atomic<State> state = State::none;
    os::EventFd event{};
  };

  void end(std::size_t host, bool good) {
    Host& it = states_.at(host);
    State coming = State::coming;
    if (it.state.compare_exchange_strong(coming, good ? State::there : State::none)) it.event.signal();
  }

  const launch::pool::Pool pool_;
  const std::vector<std::size_t> hosts_;
  std::map<std::size_t, Host> states_;  // its shape does not change while the thread runs
  std::stop_source stop_;
  std::thread thread_;
};

class RemoteHost final : public JobHost {
 public:
  /// `files`: none, or what all jobs need; `passed`: the same, for host `number` of the pool.
  RemoteHost(launch::start::NodeStart start, BeginWork begin, std::shared_ptr<const launch::files::Manifest> files,
             std::shared_ptr<PassedFiles> passed, std::size_t number)
      : start_(std::move(start)),
        begin_(std::move(begin)),
        manifest_(std::move(files)),
        passed_(std::move(passed)),
        number_(number),
        silence_(static_cast<Time::rep>(begin_.silence)),
        method_(launch::start::make_keeper_method()) {}

  [[nodiscard]] const std::string& name() const noexcept override { return start_.host.name; }

  void give(std::size_t slot, JobOrder order) override {
    const JobFileNames& files = order.files;
    if (!files.empty() && !prepare_files(slot, order)) return;
    say(RunJob{.task = order.task,
               .slot = static_cast<std::uint32_t>(slot),
               .sequence = order.sequence,
               .slot_number = order.slot_number,
               .text = std::move(order.command.text),
               .words = std::move(order.command.words),
               .has_files = !files.sends.empty(),
               .returns = files.returns,
               .cleanup = files.cleanup});
  }

  void stop(std::size_t slot, TaskNumber task, Stop how) override {
    say(StopJob{.task = task, .slot = static_cast<std::uint32_t>(slot), .how = how});
  }

  void add_waits(std::vector<pollfd>& waits) const override {
    if (!worker_) {
      waits.push_back({passed_->coming(number_), POLLIN, 0});
      return;
    }
    waits.push_back({worker_->end_fd(), POLLIN, 0});
    waits.push_back({hears_ ? ends_.reader.get() : -1, POLLIN, 0});
    waits.push_back({hears_ && sent_ < out_.size() ? ends_.writer.get() : -1, POLLOUT, 0});
  }

  [[nodiscard]] std::optional<Time> next_time() const override {
    if (passed_->coming(number_) >= 0) return std::nullopt;
    if (!worker_) return again_at_;
    if (unsaid_) return Time{0};
    return hears_ ? heard_ + silence_ : heard_ + last_words_wait;
  }

  void work(Time now, std::span<const pollfd> waits, HostNews& news) override {
    if (!worker_) {
      if (now >= again_at_ && passed_->coming(number_) < 0) begin(now, news);
      return;
    }
    for (JobEnd& end : std::exchange(not_given_, {})) news.ends.push_back(std::move(end));
    const bool all = waits.size() < 3;
    if (all || waits[1].revents != 0) hear(now, news);
    if (hears_) speak();
    if (all || waits[0].revents != 0 || !hears_) take_words();
    if (!worker_->ended() && (hears_ || now - heard_ < last_words_wait) && now - heard_ < silence_ && fault_.empty())
      return;
    take_words();
    lose(now, news);
  }

 private:
  template <class Message>
  void say(const Message& message) {
    append_message(out_, message);
    unsaid_ = true;
  }

  /// Files of a job that the worker has.
  struct MovingJob {
    std::optional<launch::files::Sender> sender{};
    std::vector<std::string> returns{};
    std::optional<launch::files::Receiver> receiver{};  // when the first of them comes
  };

  /// False: the job cannot begin.
  bool prepare_files(std::size_t slot, const JobOrder& order) {
    moving_.erase({order.task, slot});
    if (!order.files.sends.empty()) {
      auto manifest = manifest_of_names(order.files.sends);
      if (!manifest->problems.empty()) {
        not_given_.push_back({.slot = slot,
                              .task = order.task,
                              .exit_value = not_started_value,
                              .problem = fmt::format("--transferfile: {}", fmt::join(manifest->problems, "\n"))});
        unsaid_ = true;
        return false;
      }
      moving_[{order.task, slot}].sender.emplace(std::move(manifest), launch::files::Sender::Settings{});
    }
    moving_[{order.task, slot}].returns = order.files.returns;
    return true;
  }

  /// The next piece of what jobs need, one job after the other where none waits for an answer. Empty: none.
  launch::wire::Bytes next_job_file() {
    launch::wire::Bytes message;
    for (auto& [key, moving] : moving_) {
      if (!moving.sender) continue;
      const launch::wire::Bytes piece = moving.sender->next();
      if (piece.empty()) continue;
      append_message(message,
                     JobFile{.task = key.first, .slot = static_cast<std::uint32_t>(key.second), .bytes = piece});
      break;
    }
    return message;
  }

  void take_job_file(const JobFile& piece) {
    const auto at = moving_.find({piece.task, piece.slot});
    if (at == moving_.end()) return;
    MovingJob& moving = at->second;
    if (moving.sender && !moving.sender->ended()) {
      moving.sender->take(piece.bytes);
      return;
    }
    if (!moving.receiver) {
      moving.receiver.emplace(launch::files::Receiver::Settings{
          .folder = ".", .existing = launch::files::Existing::replace, .host = own_host_id(), .waits = true});
    }
    launch::files::Receiver& receiver = *moving.receiver;
    const bool was_offered = receiver.offered();
    receiver.take(piece.bytes);
    if (receiver.offered() && !was_offered && !receiver.ended()) {
      // A worker gives nothing but what it is asked for.
      if (std::ranges::all_of(receiver.entries(),
                              [&](const auto& each) { return is_among(each.path, moving.returns); }))
        receiver.accept(".");
      else
        receiver.decline("a file that nobody has asked for");
    }
    if (const auto reply = receiver.reply(); !reply.empty())
      say(JobFile{.task = piece.task, .slot = piece.slot, .bytes = reply});
  }

  void begin(Time now, HostNews& news) {
    words_ = {};
    fault_.clear();
    stream_ = {};
    out_.clear();
    sent_ = 0;
    hears_ = true;
    heard_ = now;
    try {
      worker_ = method_->begin({start_}, nullptr);
      ends_ = worker_->release_streams();
    } catch (const Error& error) {
      worker_.reset();
      fault_ = method_->not_executed(start_, error.what());
      return lose(now, news);
    }
    begin_.has_files = manifest_ != nullptr && !passed_->take(number_);
    say(begin_);
    if (begin_.has_files) files_.emplace(manifest_, launch::files::Sender::Settings{});
    speak();
  }

  void speak() {
    unsaid_ = false;
    for (;;) {
      if (sent_ == out_.size()) {
        out_.clear();
        sent_ = 0;
        // The files' own window bounds what is under way.
        const launch::wire::Bytes piece = files_ ? files_->next() : launch::wire::Bytes();
        if (!piece.empty())
          append_message(out_, FilePiece{piece});
        else
          out_ = next_job_file();
        if (out_.empty()) return;
      }
      const ssize_t count = ::write(ends_.writer.get(), out_.data() + sent_, out_.size() - sent_);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) return stop_hearing(time_now());
      sent_ += static_cast<std::size_t>(count);
    }
  }

  void stop_hearing(Time now) {
    hears_ = false;
    heard_ = now;
  }

  void hear(Time now, HostNews& news) {
    if (!hears_) return;
    const ssize_t count = ::read(ends_.reader.get(), piece_.data(), piece_.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return stop_hearing(now);
    heard_ = now;
    stream_.add(std::span(piece_).first(static_cast<std::size_t>(count)));
    while (const auto type = stream_.next_type()) {
      if (take(static_cast<WorkMessage>(*type), news) && !stream_.bad()) continue;
      fault_ = fmt::format("{}: its worker speaks another language: is APlib of the same version there?",
                           launch::start::host_name(start_));
      return;
    }
  }

  bool take(WorkMessage type, HostNews& news) {
    if (type == WorkMessage::beat) return stream_.next<Beat>().has_value();
    if (type == WorkMessage::file_piece) {
      const auto piece = stream_.next<FilePiece>();
      if (!piece || !files_) return false;
      files_->take(piece->bytes);
      return true;
    }
    if (type == WorkMessage::job_file) {
      const auto piece = stream_.next<JobFile>();
      if (!piece || slots_ == 0) return false;
      take_job_file(*piece);
      return true;
    }
    if (type == WorkMessage::worker_ready) {
      const auto ready = stream_.next<WorkerReady>();
      if (!ready || ready->version != worker_version || slots_ != 0 || ready->slots == 0 ||
          ready->slots > worker_slots_max)
        return false;
      files_.reset();
      slots_ = ready->slots;
      pause_ = again_least;
      news.came = slots_;
      return true;
    }
    if (type == WorkMessage::job_output) {
      const auto piece = stream_.next<JobOutput>();
      return piece && slots_ != 0 && keep(*piece);
    }
    if (type == WorkMessage::job_ended) {
      auto ended = stream_.next<JobEnded>();
      if (!ended || ended->slot >= slots_) return false;
      moving_.erase({ended->task, ended->slot});
      constexpr std::uint64_t most = INT64_MAX;
      JobEnd end{.slot = ended->slot,
                 .task = ended->task,
                 .begun = ended->begun,
                 .start = static_cast<double>(ended->start) / 1e9,
                 .ran = Time(static_cast<Time::rep>(std::min(ended->ran, most))),
                 .exit_value = ended->exit_value,
                 .signal = ended->signal};
      if (!ended->problem.empty())
        end.problem = fmt::format("{}: {}", launch::start::host_name(start_), launch::one_line(ended->problem));
      if (const auto files = outputs_.find(ended->task); files != outputs_.end()) {
        end.files = std::move(files->second);
        outputs_.erase(files);
      }
      news.ends.push_back(std::move(end));
      return true;
    }
    return false;
  }

  /// What a job has written comes before its end, job by job: files for others than the last one are nobody's.
  bool keep(const JobOutput& piece) {
    JobFiles& files = outputs_[piece.task];
    if (outputs_.size() > 1) return false;
    os::UniqueFd& file = files[static_cast<std::size_t>(piece.stream)];
    if (!file) file = make_job_file();
    const std::string_view text(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
    if (os::write_all(file.get(), text)) return true;
    throw Error(Errc::failed, fmt::format("what a job has written cannot be kept: {}", full_text(errno)));
  }

  void take_words() {
    for (std::string text = worker_->read(Started::error); !text.empty(); text = worker_->read(Started::error))
      words_.take(text);
  }

  /// Told the first time only, and whenever the host had come.
  void lose(Time now, HostNews& news) {
    if (!told_ || slots_ != 0) news.lost = why(now);
    told_ = true;
    slots_ = 0;
    worker_.reset();
    ends_ = {};
    files_.reset();
    outputs_.clear();
    moving_.clear();
    not_given_.clear();
    again_at_ = now + pause_;
    pause_ = std::min(2 * pause_, again_most);
  }

  [[nodiscard]] std::string why(Time now) const {
    const std::string name = launch::start::host_name(start_);
    if (!fault_.empty()) return fault_;
    if (hears_ && now - heard_ >= silence_)
      return fmt::format("{}: its worker has said nothing for {:.3g} s", name,
                         std::chrono::duration<double>(silence_).count());
    launch::start::MethodEnd end = words_.end();
    end.arrived = slots_ != 0;
    const launch::start::Verdict verdict = method_->judge(start_, end);
    if (verdict.kind == launch::start::Verdict::Kind::failed) return verdict.text;
    return fmt::format("{}: its worker {}{}", name, launch::start::how_it_ended(verdict.status),
                       launch::start::in_quotes(end.words));
  }

  const launch::start::NodeStart start_;
  BeginWork begin_;
  const std::shared_ptr<const launch::files::Manifest> manifest_;
  const std::shared_ptr<PassedFiles> passed_;
  const std::size_t number_;
  const Time silence_;
  const std::unique_ptr<launch::start::LaunchMethod> method_;
  std::unique_ptr<Started> worker_;  // null: it is to be started at again_at_
  os::Ends ends_;
  Time again_at_{0};
  Time pause_ = again_least;
  bool told_ = false;  // that it is lost

  bool hears_ = false;  // its connection is open
  Time heard_{0};       // since when it is silent, or its connection closed
  std::uint32_t slots_ = 0;
  MessageStream stream_;
  std::optional<launch::files::Sender> files_;  // on their way
  launch::wire::Bytes out_;
  std::size_t sent_ = 0;  // of out_
  bool unsaid_ = false;   // out_ has more than speak() has seen
  launch::wire::Bytes piece_ = launch::wire::Bytes(std::size_t{256} << 10);
  std::unordered_map<TaskNumber, JobFiles> outputs_;
  std::map<std::pair<TaskNumber, std::size_t>, MovingJob> moving_;  // by task and slot
  std::vector<JobEnd> not_given_;                                   // of jobs whose files are not here
  launch::start::KeptWords words_;
  std::string fault_;  // why it is of no use
};

}  // namespace

namespace {

/// Null: none.
std::shared_ptr<const launch::files::Manifest> manifest_of(const std::vector<std::string>& files) {
  if (files.empty()) return nullptr;
  std::vector<launch::files::Source> sources;
  for (const std::string& file : files) sources.push_back({file, launch::files::own_place(file)});
  auto manifest = std::make_shared<launch::files::Manifest>(launch::files::gather(sources, own_host_id()));
  if (!manifest->problems.empty())
    throw Error(Errc::bad_option, fmt::format("--basefile: {}", fmt::join(manifest->problems, "\n")));
  return manifest;
}

/// Those that have neighbours, if there is anything to pass on.
std::vector<std::size_t> hosts_that_pass(const launch::pool::Pool& pool, bool has_files) {
  std::vector<std::size_t> all(has_files ? pool.hosts().size() : 0);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return launch::pool::hosts_with_neighbours(pool, all);
}

}  // namespace

std::vector<std::unique_ptr<JobHost>> hosts_of_pool(const PoolSettings& settings) {
  const launch::pool::Pool pool = launch::pool::Pool::reach(settings.pool);
  const std::string here = std::filesystem::path(os::own_program()).parent_path().string();
  const launch::cluster::Cluster standing = pool.standing_cluster();
  const char* const shell = std::getenv("PARALLEL_SHELL");
  const BeginWork begin{.jobs = settings.jobs,
                        .shell = shell == nullptr ? "" : shell,
                        .owner = fmt::format("{}", ::getpid()),
                        .silence = static_cast<std::uint64_t>(pool.cluster().options.peer_timeout.count()),
                        .cells = settings.cells,
                        .nice = static_cast<std::uint8_t>(settings.nice),
                        .entry = settings.entry};
  const auto manifest = manifest_of(settings.files);
  const auto passed =
      std::make_shared<PassedFiles>(pool, hosts_that_pass(pool, manifest != nullptr), manifest, settings.folder);
  std::vector<std::unique_ptr<JobHost>> hosts;
  for (std::size_t i = 0; i < pool.hosts().size(); ++i) {
    const std::filesystem::path worker = std::filesystem::path(pool.keeper_program(i, here)).replace_filename("apfarm");
    launch::start::NodeStart start{.process = static_cast<std::uint32_t>(i),
                                   .host = standing.hosts[pool.hosts()[i].members.front()],
                                   .command = {worker.string(), "--worker"},
                                   .input = {}};
    if (!settings.folder.empty()) start.host.folder = settings.folder;
    hosts.push_back(std::make_unique<RemoteHost>(std::move(start), begin, manifest, passed, i));
  }
  return hosts;
}

}  // namespace aplib::farm
