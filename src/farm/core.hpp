// SPDX-License-Identifier: MIT
// Core: what a Farm and its futures share: the queue, the tasks in it, and those who wait for room. Its kinds run the
// tasks, in threads or in processes.
#pragma once

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "aplib/farm.hpp"
#include "base/farm_tally.hpp"
#include "farm/journal.hpp"
#include "farm/queue.hpp"

namespace aplib::farm::detail {

/// Tasks that have ended, to be told so when no lock is held: what waits for them may call the farm.
struct EndedTask {
  std::shared_ptr<TaskState> task;
  Outcome outcome;
  std::exception_ptr error;
};
using EndedTasks = std::vector<EndedTask>;

class Core : public std::enable_shared_from_this<Core> {
 public:
  virtual ~Core() = default;
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Any thread. `waits`: for room, unless the caller is a worker.
  void submit(const std::shared_ptr<TaskState>& task, bool waits);
  bool cancel(TaskState& task);
  /// Until no task is held.
  void wait();
  /// Cancels what is held, and ends the workers. Once.
  void close();
  [[nodiscard]] unsigned workers() const noexcept { return workers_; }

 protected:
  Core(const Options& options, const Policy& policy, unsigned workers)
      : options_(options),
        workers_(workers),
        queue_(policy),
        tally_(options.where == Where::threads     ? "threads"
               : options.where == Where::processes ? "processes"
                                                   : "pool " + options.pool,
               program_invocation_short_name) {
    if (!options.journal.empty()) journal_.emplace(options.journal);
  }

  /// Fills in what goes elsewhere. Throws Error(bad_argument).
  virtual void prepare(TaskState& task) = 0;
  /// Its function and arguments as bytes. Throws Error(bad_argument).
  static void encode(TaskState& task, const char* where, const char* remedy);
  /// There are new tasks, or actions. REQUIRES: mutex_ is held.
  virtual void wake() = 0;
  virtual void end_workers() = 0;

  // All of these: mutex_ is held.
  [[nodiscard]] TaskState& task_of(TaskNumber number) { return *tasks_[Queue::place_of(number)]; }
  [[nodiscard]] std::shared_ptr<TaskState> share(TaskNumber number) { return tasks_[Queue::place_of(number)]; }
  /// Null: no task has that number now. The number may be anything.
  [[nodiscard]] std::shared_ptr<TaskState> share_if_held(TaskNumber number) const {
    const std::size_t place = Queue::place_of(number);
    return place < tasks_.size() && tasks_[place] != nullptr && tasks_[place]->number == number ? tasks_[place]
                                                                                                : nullptr;
  }
  [[nodiscard]] std::vector<std::shared_ptr<TaskState>> held_tasks() const {
    std::vector<std::shared_ptr<TaskState>> held;
    for (const auto& task : tasks_) {
      if (task != nullptr) held.push_back(task);
    }
    return held;
  }
  /// The task is no longer the queue's. Tells those who wait for room.
  std::shared_ptr<TaskState> release(TaskNumber number);

  /// Counts a task that has ended, for those who look on; `error`: what it has thrown.
  void note_end(const std::exception_ptr& error) noexcept;
  /// Shows them how many tasks there are.
  void show_counts() noexcept;

  static Time now() { return std::chrono::steady_clock::now().time_since_epoch(); }
  static void tell(EndedTasks& ended);

  /// Of what a task that was done has as its result.
  void add_to_journal(const TaskState& task, std::span<const std::byte> result);

  const Options options_;
  const unsigned workers_;
  std::mutex mutex_;  // guards what follows
  Queue queue_;
  Actions actions_;
  bool closing_ = false;
  std::optional<Journal> journal_;  // not guarded: it has a lock of its own

 private:
  bool take_from_journal(TaskState& task);

  std::condition_variable room_;
  std::condition_variable empty_;
  std::size_t submitters_ = 0;  // that wait for room
  std::uint64_t done_ = 0;
  std::uint64_t failed_ = 0;
  FarmTally tally_;
  std::vector<std::shared_ptr<TaskState>> tasks_;
};

/// The calling thread runs tasks, and must not wait for room.
extern thread_local bool is_worker;

/// What a task's run in another process said that it threw, or how it was ended.
[[nodiscard]] std::exception_ptr error_of(Outcome outcome, const std::string& text);

[[nodiscard]] std::shared_ptr<Core> make_thread_core(const Options& options, unsigned workers);
[[nodiscard]] std::shared_ptr<Core> make_process_core(const Options& options, unsigned workers);

/// The functions of this program that tasks can name.
[[nodiscard]] std::uint32_t stub_count();
[[nodiscard]] Stub stub_at(std::uint32_t number);  ///< Null: there is none.
/// Equal in two processes exactly when their numbers mean the same functions.
[[nodiscard]] std::uint64_t stubs_digest();
/// What a worker in a pool does until its farm is gone, and then ends the process.
[[noreturn]] void serve_pool(int in, int out);

}  // namespace aplib::farm::detail
