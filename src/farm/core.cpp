// SPDX-License-Identifier: MIT
#include "farm/core.hpp"

#include <system_error>
#include <utility>

#include "base/cpus.hpp"
#include "base/os/thread.hpp"
#include "farm/pool_worker.hpp"

namespace aplib::farm {

TaskError::~TaskError() = default;

namespace detail {

thread_local bool is_worker = false;

namespace {

struct NamedStub {
  Stub stub;
  const char* name;
};

struct Stubs {
  std::mutex mutex;
  std::vector<NamedStub> all;
};

/// Programs register while their statics are made, in an order that nobody knows.
Stubs& stubs() {
  static Stubs* const made = new Stubs;
  return *made;
}

}  // namespace

std::uint32_t register_stub(Stub stub, const char* name) {
  const std::lock_guard lock(stubs().mutex);
  stubs().all.push_back({stub, name});
  return static_cast<std::uint32_t>(stubs().all.size() - 1);
}

std::uint32_t stub_count() {
  const std::lock_guard lock(stubs().mutex);
  return static_cast<std::uint32_t>(stubs().all.size());
}

Stub stub_at(std::uint32_t number) {
  const std::lock_guard lock(stubs().mutex);
  return number < stubs().all.size() ? stubs().all[number].stub : nullptr;
}

std::uint64_t stubs_digest() {
  constexpr std::uint64_t basis = 0xcbf29ce484222325;  // FNV-1a
  constexpr std::uint64_t prime = 0x100000001b3;
  std::uint64_t digest = basis;
  const std::lock_guard lock(stubs().mutex);
  for (const NamedStub& each : stubs().all) {
    for (const char* c = each.name;; ++c) {
      digest = (digest ^ static_cast<unsigned char>(*c)) * prime;
      if (*c == '\0') break;
    }
  }
  return digest;
}

namespace {

/// REQUIRES: there is one of that number.
const char* stub_name(std::uint32_t number) {
  const std::lock_guard lock(stubs().mutex);
  return stubs().all[number].name;
}

}  // namespace

void refuse_arguments() { throw TaskError(Outcome::failed, "its arguments are not what the function takes"); }

TaskState::~TaskState() = default;

bool TaskState::end(Outcome outcome, std::exception_ptr error) {
  std::vector<std::function<void()>> then;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ending_, true)) return false;
    if (error == nullptr && outcome != Outcome::done) error = error_of(outcome, "");
    error_ = std::move(error);
    then = std::move(then_);
    ended_.store(1, std::memory_order_release);
  }
  ended_.notify_all();
  for (const auto& each : then) each();
  return true;
}

void TaskState::at_end(std::function<void()> what) {
  {
    const std::lock_guard lock(mutex_);
    if (!ending_) {
      then_.push_back(std::move(what));
      return;
    }
  }
  what();
}

std::exception_ptr error_of(Outcome outcome, const std::string& text) {
  std::string words = text;
  if (outcome == Outcome::timed_out) words = "the task ran longer than it may (Options::timeout)";
  if (outcome == Outcome::crashed)
    words = "the task was given up: the workers that ran it died, as often as Options::crash_limit allows" + text;
  if (outcome == Outcome::cancelled) words = "the task was cancelled";
  return std::make_exception_ptr(TaskError(outcome, words));
}

void submit(const std::shared_ptr<Core>& core, const std::shared_ptr<TaskState>& task, bool waits) {
  core->submit(task, waits);
}

bool cancel(TaskState& task) {
  const std::shared_ptr<Core> core = task.core;
  return core != nullptr ? core->cancel(task) : task.end(Outcome::cancelled, nullptr);
}

void Core::encode(TaskState& task, const char* where, const char* remedy) {
  if (task.send(task.function, task.arguments)) return;
  throw Error(Errc::bad_argument,
              std::string("farm: this task cannot go ") + where +
                  ": its callable must be trivially copyable, its arguments and its result numbers, strings, vectors "
                  "or structures with list() (aplib/farm_bytes.hpp); or " +
                  remedy);
}

bool Core::take_from_journal(TaskState& task) {
  journal_->check();
  const auto result = journal_->take(stub_name(task.function), task.arguments);
  if (!result || !task.receive(*result)) return false;
  task.end(Outcome::done, nullptr);
  return true;
}

void Core::add_to_journal(const TaskState& task, std::span<const std::byte> result) {
  journal_->add({.function = stub_name(task.function), .arguments = task.arguments, .result = result});
}

void Core::submit(const std::shared_ptr<TaskState>& task, bool waits) {
  prepare(*task);
  task->core = shared_from_this();
  if (journal_ && take_from_journal(*task)) return;
  const Time timeout = task->options.timeout != Time{0} ? task->options.timeout : options_.timeout;
  Terms terms{.priority = task->options.priority,
              .bytes = task->arguments.size(),
              .retries = task->options.retries.value_or(options_.retries),
              .timeout = timeout,
              .beyond = !waits || is_worker};
  {
    std::unique_lock lock(mutex_);
    if (!terms.beyond && !closing_ && !queue_.has_room(terms.bytes)) {
      ++submitters_;
      room_.wait(lock, [&] { return closing_ || queue_.has_room(terms.bytes); });
      --submitters_;
    }
    const auto number = closing_ ? std::nullopt : queue_.submit(terms);
    if (number) {
      const std::size_t place = Queue::place_of(*number);
      if (place >= tasks_.size()) tasks_.resize(place + 1);
      tasks_[place] = task;
      task->number = *number;
      show_counts();
      wake();
      return;
    }
  }
  task->end(Outcome::cancelled, nullptr);  // the farm ends, or a task has submitted millions
}

void Core::note_end(const std::exception_ptr& error) noexcept {
  if (error == nullptr) {
    ++done_;
    return;
  }
  ++failed_;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    tally_.note_failure(thrown.what());
  } catch (...) {
    tally_.note_failure("it threw something that is no std::exception");
  }
}

void Core::show_counts() noexcept {
  const std::uint64_t running = std::min<std::uint64_t>(queue_.held() - queue_.waiting(), workers_);
  tally_.set(
      {.workers = workers_, .queued = queue_.held() - running, .running = running, .done = done_, .failed = failed_});
}

std::shared_ptr<TaskState> Core::release(TaskNumber number) {
  std::shared_ptr<TaskState> task = std::move(tasks_[Queue::place_of(number)]);
  if (submitters_ != 0) room_.notify_one();
  if (queue_.held() == 0) empty_.notify_all();
  return task;
}

bool Core::cancel(TaskState& task) {
  std::shared_ptr<TaskState> kept;
  {
    const std::lock_guard lock(mutex_);
    if (task.number != UINT64_MAX && queue_.cancel(task.number, actions_)) {
      kept = release(task.number);
      wake();
    }
  }
  return task.end(Outcome::cancelled, nullptr);
}

void Core::wait() {
  std::unique_lock lock(mutex_);
  empty_.wait(lock, [this] { return queue_.held() == 0; });
}

void Core::close() {
  EndedTasks ended;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    Actions unused;  // workers end anyway
    for (const auto& task : tasks_) {
      if (task != nullptr && queue_.cancel(task->number, unused))
        ended.push_back({.task = task, .outcome = Outcome::cancelled, .error = nullptr});
    }
    room_.notify_all();
    empty_.notify_all();
    wake();
  }
  tell(ended);
  end_workers();
  std::vector<std::shared_ptr<TaskState>> dropped;
  const std::lock_guard lock(mutex_);
  show_counts();
  const std::string all = std::to_string(done_ + failed_);
  tally_.end(failed_ == 0 ? 0 : 1, failed_ == 0 ? "" : std::to_string(failed_) + " of " + all + " tasks failed");
  tasks_.swap(dropped);
}

void Core::tell(EndedTasks& ended) {
  for (EndedTask& each : ended) each.task->end(each.outcome, std::move(each.error));
  ended.clear();
}

}  // namespace detail

Farm::Farm(const Options& options) {
  const bool far = options.where == Where::pool;
  if (const auto streams = streams_of_worker(); far && streams) detail::serve_pool(streams->in, streams->out);
  const unsigned workers = options.workers != 0 ? options.workers
                           : far                ? cores_of_pool(options.pool)
                                                : usable_cpu_count(allowed_cpus().size(), cpu_quota());
  try {
    core_ = options.where == Where::threads ? detail::make_thread_core(options, workers)
                                            : detail::make_process_core(options, workers);
  } catch (const std::system_error& error) {
    throw Error(Errc::exhausted, "farm: cannot start its threads: " + error.code().message() + os::thread_remedy);
  }
}

Farm::~Farm() { core_->close(); }

void Farm::wait() { core_->wait(); }
unsigned Farm::workers() const noexcept { return core_->workers(); }

}  // namespace aplib::farm
