// SPDX-License-Identifier: MIT
// Tasks in other processes, here or on the hosts of a pool. One thread, the dispatcher, speaks to all of them: it
// hands out what the queue gives, and reads results. A worker that dies is replaced. One in a pool gets tasks once it
// has said that it is of the same program; one that cannot be started costs no task.
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "aplib/version.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/local_socket.hpp"
#include "base/os/thread.hpp"
#include "base/os/time.hpp"
#include "farm/core.hpp"
#include "farm/messages.hpp"
#include "farm/nursery.hpp"
#include "farm/pool_worker.hpp"

namespace aplib::farm::detail {
namespace {

/// A worker may keep a result for so long, to send several at once.
constexpr Time results_kept = std::chrono::milliseconds(1);
/// The dispatcher looks for news so long before it sleeps, where a worker is idle, whose processor it may use: to be
/// woken takes as long as an empty task.
constexpr Time looks_first = std::chrono::microseconds(50);
/// A run that is of no use any more may go on for so long, before its worker is replaced.
constexpr Time useless_run = std::chrono::milliseconds(100);
/// Without room for a process, the dispatcher tries again after that.
constexpr Time make_again = std::chrono::milliseconds(100);
/// In a pool it does so more and more seldom, while none begins.
constexpr Time make_again_max = std::chrono::seconds(8);
/// So long a farm waits for workers of a pool, when it has none left, and when it never had one.
constexpr Time without_workers = std::chrono::seconds(60);
constexpr Time without_first_worker = std::chrono::seconds(5);
/// So long the end of a farm waits for what workers of a pool have printed last.
constexpr Time last_words = std::chrono::seconds(2);

Time steady_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

/// One task, in a worker. `result`: what it gives; the answer is good as long as that is.
RunEnded run_task(const RunTask& task, Bytes& result) {
  RunEnded ended{.number = task.number};
  const Time begun = steady_now();
  try {
    const Stub stub = stub_at(task.function);
    if (stub == nullptr) throw TaskError(Outcome::failed, "the worker does not have its function");
    result = stub(task.arguments);
  } catch (const std::exception& error) {
    ended.outcome = Outcome::failed;
    const auto text = std::as_bytes(std::span(error.what(), std::strlen(error.what())));
    result.assign(text.begin(), text.end());
  } catch (...) {
    ended.outcome = Outcome::failed;
    const auto text = std::as_bytes(std::span("it threw something that is no std::exception"));
    result.assign(text.begin(), text.end() - 1);
  }
  ended.nanoseconds = static_cast<std::uint64_t>((steady_now() - begun).count());
  ended.result = result;
  return ended;
}

WorkerHello own_hello() { return {.version = version, .functions = stubs_digest()}; }

/// What a worker has to say. Results of short tasks go together; none waits for the end of a long one.
class Results {
 public:
  Results(int channel, Bytes first) : channel_(channel), out_(std::move(first)) {}
  ~Results() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    if (sender_.joinable()) sender_.join();
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  /// False: the farm is gone.
  [[nodiscard]] bool add(const RunEnded& ended) {
    const std::lock_guard lock(mutex_);
    append_message(out_, ended);
    printed_ = false;
    return steady_now() - sent_ < results_kept || flush();
  }
  [[nodiscard]] bool send() {
    const std::lock_guard lock(mutex_);
    return flush();
  }
  /// Before another task runs: what has not left goes within `results_kept`, however long that task takes.
  [[nodiscard]] bool send_soon() {
    const std::lock_guard lock(mutex_);
    if (out_.empty()) return true;
    std::fflush(nullptr);  // on this thread, because the task may hold a lock of stdio
    printed_ = true;
    if (!sender_.joinable()) {
      try {
        sender_ = os::quiet_thread("aplib-results", [this] { send_late(); });
      } catch (const std::exception&) {  // no thread: at once
        return flush();
      }
    }
    if (std::exchange(waits_, false)) changed_.notify_one();
    return true;
  }

 private:
  /// The lock is held.
  bool flush() {
    sent_ = steady_now();
    if (out_.empty()) return true;
    std::fflush(nullptr);
    return write();
  }
  bool write() {
    const bool good = os::write_all(channel_, {reinterpret_cast<const char*>(out_.data()), out_.size()});
    out_.clear();
    return good;
  }

  /// A thread. While results keep coming it looks once in `results_kept`, and is told nothing.
  void send_late() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (out_.empty()) {
        waits_ = true;
        changed_.wait(lock, [&] { return over_ || !waits_; });
      } else if (!printed_ || steady_now() < sent_ + results_kept) {
        changed_.wait_for(lock, results_kept, [&] { return over_; });
      } else {
        sent_ = steady_now();
        static_cast<void>(write());  // that the farm is gone is seen by the next to write
      }
    }
  }

  const int channel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Bytes out_;
  Time sent_ = steady_now();
  bool printed_ = false;  // what the tasks of out_ have written by stdio has left
  bool waits_ = false;    // send_late(), until there is something
  bool over_ = false;
  std::thread sender_;
};

/// What a worker does until its farm is gone. `first`: what it says first.
void serve(WorkerStreams channel, Bytes first) {
  is_worker = true;
  MessageStream stream;
  Bytes bytes(std::size_t{256} << 10);
  Results results(channel.out, std::move(first));
  for (;;) {
    while (const auto task = stream.next<RunTask>()) {
      Bytes result;
      if (!results.send_soon() || !results.add(run_task(*task, result))) return;
    }
    if (stream.bad() || !results.send()) return;
    const ssize_t count = ::read(channel.in, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    stream.add(std::span(bytes).first(static_cast<std::size_t>(count)));
  }
}

struct Worker {
  Nursery::Child child;
  MessageStream in{};
  Bytes out{};
  std::size_t sent = 0;  // of out
  Time useless_until = Time::max();
  bool lost = false;
};

class ProcessCore final : public Core {
 public:
  ProcessCore(const Options& options, unsigned workers)
      : Core(options,
             {.tasks_max = options.tasks_max,
              .bytes_max = options.bytes_max,
              .crash_limit = options.crash_limit,
              .copies = options.copies},
             workers),
        far_(options.where == Where::pool),
        nursery_(std::in_place, starter(options)),
        functions_(stub_count()) {
    for (unsigned i = 0; i < workers; ++i) add_worker();
    dispatcher_ = std::thread([this] { dispatch(); });
  }

 private:
  static Nursery::Serve starter(const Options& options) {
    if (options.where != Where::pool) return [](int channel, unsigned) { serve({channel, channel}, {}); };
    return [program = PoolProgram::of_this_process(options.pool)](int channel, unsigned number) {
      program.run(number, channel);
    };
  }

  void prepare(TaskState& task) override {
    encode(task, "to another process", "use Where::threads");
    if (task.function >= functions_) {
      throw Error(Errc::bad_argument,
                  "farm: this task's code was loaded after the farm was made, so the workers do not have it; make the "
                  "farm after dlopen()");
    }
  }

  void wake() override {
    if (std::exchange(asleep_, false)) event_.signal();
  }

  void end_workers() override {
    event_.signal();
    dispatcher_.join();
    if (far_) hear_last_words();
    for (auto& [number, worker] : crew_) static_cast<void>(nursery_->end(worker.child.process));
    for (Worker& worker : starting_) static_cast<void>(nursery_->end(worker.child.process));
    crew_.clear();
    starting_.clear();
    nursery_.reset();
  }

  /// What workers of a pool have printed may come after their results, and apctl keeps what ends without a newline. It
  /// closes its channel when it has passed all on.
  void hear_last_words() {
    for (const auto& [number, worker] : crew_) ::shutdown(worker.child.channel.get(), SHUT_WR);
    const Time until = now() + last_words;
    for (const auto& [number, worker] : crew_) {
      pollfd one{worker.child.channel.get(), POLLIN, 0};
      for (Time time = now(); time < until; time = now()) {
        static_cast<void>(::poll(&one, 1, static_cast<int>((until - time) / std::chrono::milliseconds(1)) + 1));
        const ssize_t count = ::recv(one.fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) break;
      }
    }
  }

  void add_worker() {
    Worker worker{.child = nursery_->make()};
    if (far_) {
      starting_.push_back(std::move(worker));
      return;
    }
    const std::lock_guard lock(mutex_);
    crew_[queue_.join()] = std::move(worker);
  }
  [[nodiscard]] bool lacks_workers() const { return crew_.size() + starting_.size() < workers_; }

  void dispatch() {
    EndedTasks ended;
    for (;;) {
      std::optional<Time> until;
      bool some_idle = false;
      {
        const std::lock_guard lock(mutex_);
        if (closing_) return;
        until = hand_out(ended);
        some_idle = queue_.held() < crew_.size();
        asleep_ = true;
      }
      tell(ended);
      for (auto& [number, worker] : crew_) send_rest(worker);
      wait(until, some_idle);
      receive(ended);
      replace_lost(ended);
      if (journal_) journal_->flush();  // before anybody sees the results
      tell(ended);
    }
  }

  /// What the queue wants done now. Returns when it wants to be asked again. The lock is held.
  std::optional<Time> hand_out(EndedTasks& ended) {
    const Time time = now();
    queue_.tick(time, actions_);
    act(ended, "");
    queue_.give(time, [this](WorkerNumber number, const std::vector<TaskNumber>& tasks) {
      Worker& worker = crew_.at(number);
      for (const TaskNumber task : tasks) {
        const TaskState& state = task_of(task);
        append_message(worker.out, RunTask{.number = task, .function = state.function, .arguments = state.arguments});
      }
    });
    show_counts();
    std::optional<Time> until = queue_.next_time();
    for (auto& [number, worker] : crew_) {
      if (!queue_.runs_for_nothing(number))
        worker.useless_until = Time::max();
      else if (worker.useless_until == Time::max())
        worker.useless_until = time + useless_run;
      if (worker.useless_until <= time) worker.lost = true;
      if (worker.useless_until != Time::max()) until = std::min(until.value_or(Time::max()), worker.useless_until);
      if (worker.lost) until = time;
    }
    if (lacks_workers()) until = std::min(until.value_or(Time::max()), std::max(time, start_after_) + make_again);
    return until;
  }

  /// The lock is held.
  void act(EndedTasks& ended, const std::string& why) {
    for (const Action& action : std::exchange(actions_, {})) {
      if (action.kind == Action::Kind::ended) {
        const std::string text = action.outcome == Outcome::crashed && !why.empty() ? " (" + why + ")" : "";
        add_end(ended, action.task, action.outcome, error_of(action.outcome, text));
        continue;
      }
      // Other runs that are of no use may end by themselves for a while: hand_out().
      const auto worker = crew_.find(action.worker);
      if (worker != crew_.end() && action.outcome == Outcome::timed_out) worker->second.lost = true;
    }
  }

  /// The lock is held.
  void add_end(EndedTasks& ended, TaskNumber number, Outcome outcome, const std::exception_ptr& error) {
    note_end(error);
    ended.push_back({.task = release(number), .outcome = outcome, .error = error});
  }

  static void send_rest(Worker& worker) {
    while (worker.sent < worker.out.size() && !worker.lost) {
      const ssize_t count = ::send(worker.child.channel.get(), worker.out.data() + worker.sent,
                                   worker.out.size() - worker.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == ENOBUFS)) return;
      if (count < 0) worker.lost = true;
      worker.sent += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    }
    worker.out.clear();
    worker.sent = 0;
  }

  void wait(std::optional<Time> until, bool looks) {
    polled_.clear();
    polled_.push_back({event_.get(), POLLIN, 0});
    for (const auto& [number, worker] : crew_) {
      const short wanted = worker.out.empty() ? POLLIN : POLLIN | POLLOUT;
      polled_.push_back({worker.child.channel.get(), wanted, 0});
    }
    for (const Worker& worker : starting_) polled_.push_back({worker.child.channel.get(), POLLIN, 0});
    int ready = 0;
    for (const Time end = now() + looks_first; looks && ready == 0 && now() < end;) {
      ::sched_yield();
      ready = ::poll(polled_.data(), polled_.size(), 0);
    }
    const timespec left = os::timespec_of(until.value_or(Time{0}) - now());
    if (ready == 0) ready = ::ppoll(polled_.data(), polled_.size(), until ? &left : nullptr, nullptr);
    if (ready < 0)
      for (pollfd& each : polled_) each.revents = 0;
    event_.clear();
    const std::lock_guard lock(mutex_);
    asleep_ = false;
  }

  void receive(EndedTasks& ended) {
    std::size_t place = 1;
    for (auto& [number, worker] : crew_) {
      if (!read(worker, polled_[place++])) continue;
      const std::lock_guard lock(mutex_);
      while (const auto report = worker.in.next<RunEnded>()) note(number, *report, ended);
      worker.lost = worker.lost || worker.in.bad();
      act(ended, "");
    }
    for (Worker& worker : starting_)
      if (read(worker, polled_[place++])) meet(worker, ended);
    std::erase_if(starting_, [](const Worker& worker) { return !worker.child.channel; });
  }

  /// False: nothing has come.
  bool read(Worker& worker, const pollfd& polled) {
    if ((polled.revents & (POLLIN | POLLHUP | POLLERR)) == 0) return false;
    const ssize_t count = ::recv(worker.child.channel.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    if (count > 0)
      worker.in.add(std::span(buffer_).first(static_cast<std::size_t>(count)));
    else
      worker.lost = true;
    return count > 0;
  }

  /// One that begins, in a pool. If it is what it should be, it is of the crew from here on.
  void meet(Worker& worker, EndedTasks& ended) {
    const auto hello = worker.in.next<WorkerHello>();
    worker.lost = worker.lost || worker.in.bad();
    if (!hello) return;
    if (*hello != own_hello()) {
      worker.lost = true;
      return give_up(fmt::format("a host of pool {} has another build of {} (with APlib {}; here it is {}): bring it "
                                 "there with apctl put",
                                 options_.pool, program_invocation_name, hello->version, version),
                     ended);
    }
    alone_since_.reset();
    failed_starts_ = 0;
    has_begun_ = true;
    const std::lock_guard lock(mutex_);
    crew_[queue_.join()] = std::move(worker);
  }

  /// The lock is held.
  void note(WorkerNumber number, const RunEnded& report, EndedTasks& ended) {
    const std::shared_ptr<TaskState> task = share_if_held(report.number);
    Outcome outcome = report.outcome == Outcome::done ? Outcome::done : Outcome::failed;
    std::string text(reinterpret_cast<const char*>(report.result.data()),
                     outcome == Outcome::failed ? report.result.size() : 0);
    if (outcome == Outcome::done && task != nullptr && !task->ended() && !task->receive(report.result)) {
      outcome = Outcome::failed;
      text = "what came back is no result of its type";
    }
    const Time ran(static_cast<Time::rep>(std::min<std::uint64_t>(report.nanoseconds, INT64_MAX)));
    if (queue_.finished(number, report.number, outcome, ran, now(), actions_) != Queue::Verdict::counts) return;
    if (journal_ && outcome == Outcome::done && task != nullptr) add_to_journal(*task, report.result);
    add_end(ended, report.number, outcome, outcome == Outcome::done ? nullptr : error_of(outcome, text));
  }

  void replace_lost(EndedTasks& ended) {
    for (auto each = crew_.begin(); each != crew_.end();) {
      if (!each->second.lost) {
        ++each;
        continue;
      }
      const std::string why = nursery_->end(each->second.child.process);
      const std::lock_guard lock(mutex_);
      queue_.died(each->first, actions_);
      each = crew_.erase(each);
      act(ended, why);
    }
    if (far_) replace_unstarted(ended);
    while (lacks_workers() && now() >= start_after_) {
      try {
        add_worker();
      } catch (const Error& error) {
        if (crew_.empty()) give_up(error.what(), ended);
        return;
      }
    }
  }

  /// Those of a pool that have not begun.
  void replace_unstarted(EndedTasks& ended) {
    std::string why;
    for (Worker& worker : starting_)
      if (worker.lost) why = nursery_->end(worker.child.process);
    std::erase_if(starting_, [](const Worker& worker) { return worker.lost; });
    if (!why.empty()) {
      constexpr unsigned doublings_max = 7;
      const Time pause = make_again * (1U << std::min(failed_starts_++, doublings_max));
      start_after_ = now() + std::min(pause, make_again_max);
      last_why_ = std::move(why);
    }
    if (!crew_.empty() || failed_starts_ == 0) return;
    if (!alone_since_) alone_since_ = now();
    if (now() - *alone_since_ < (has_begun_ ? without_workers : without_first_worker)) return;
    give_up(fmt::format("no worker begins in pool {}: apctl exec {}, and has said why on the standard error",
                        options_.pool, last_why_),
            ended);
  }

  /// There are no workers, and none can be made: what waits would wait for ever.
  void give_up(const std::string& why, EndedTasks& ended) {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<TaskState>& task : held_tasks()) {
      if (!queue_.cancel(task->number, actions_)) continue;
      add_end(ended, task->number, Outcome::failed, error_of(Outcome::failed, why));
    }
  }

  const bool far_;
  std::optional<Nursery> nursery_;
  const std::uint32_t functions_;
  os::EventFd event_;
  std::map<WorkerNumber, Worker> crew_;  // the dispatcher's, as all to polled_
  std::vector<Worker> starting_;         // of a pool: they have not said what they are
  Time start_after_{0};
  unsigned failed_starts_ = 0;  // one after the other
  bool has_begun_ = false;      // some worker of a pool
  std::optional<Time> alone_since_;
  std::string last_why_;
  std::vector<pollfd> polled_;
  Bytes buffer_ = Bytes(std::size_t{256} << 10);
  bool asleep_ = false;  // guarded by mutex_
  std::thread dispatcher_;
};

}  // namespace

void serve_pool(int in, int out) {
  // A task that hangs, or takes long, does not outlive its farm.
  os::quiet_thread("aplib-farm", [in] {
    pollfd closed{.fd = in, .events = POLLRDHUP, .revents = 0};
    while (::poll(&closed, 1, -1) < 0 && errno == EINTR) {
    }
    ::_exit(1);
  }).detach();
  Bytes hello;
  append_message(hello, own_hello());
  serve({in, out}, std::move(hello));
  ::_exit(0);
}

std::shared_ptr<Core> make_process_core(const Options& options, unsigned workers) {
  return std::make_shared<ProcessCore>(options, workers);
}

}  // namespace aplib::farm::detail
