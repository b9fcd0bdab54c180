// SPDX-License-Identifier: MIT
// Queue: the tasks of a farm and who runs them. It is pure logic without clock, threads or sockets: its owner tells it
// what happens and what time it is, and does what it answers.
//
//   submit()   ->  waiting  --take()-->  given to a worker  --finished()-->  ended, once
//                     ^                       |  died(), or failed with retries left
//                     +-----------------------+
//
// What it promises: (1) every task that submit() took ends once, by one finished() that counts, by an Action or by
// cancel(); (2) it holds at most tasks_max tasks and bytes_max bytes; (3) a death costs the tasks that the worker held
// another run, and nothing else; (4) a task that takes its worker with it crash_limit times is given up.
//
// A worker runs what it holds in order, so the first task that it has not finished is the one that it runs. What else
// it held when it died is under suspicion, too, since reports may have been lost: such tasks run alone from then on, so
// that the next death has one cause.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "aplib/farm_outcome.hpp"

namespace aplib::farm {

using Time = std::chrono::nanoseconds;  ///< Since a moment that the owner chooses. Never runs backwards.
using TaskNumber = std::uint64_t;       ///< Never used twice.
using WorkerNumber = std::uint32_t;     ///< Never used twice.

struct Policy {
  std::uint64_t tasks_max = 1'000'000;  ///< Held at once, waiting or given; below 2^24.
  std::uint64_t bytes_max = std::uint64_t{1} << 30;
  std::uint32_t crash_limit = 5;
  std::uint32_t batch_max = 256;                   ///< Tasks that a worker holds. 1: one by one.
  Time batch_time = std::chrono::milliseconds(2);  ///< Work that a worker holds, where tasks are short.
  /// Whether idle workers run what others hold, when nothing waits; the first result counts.
  bool copies = true;
  double copies_max = 0.02;                        ///< Of the tasks that have been done; and one more.
  double copy_after = 2;                           ///< So many times longer than tasks usually take.
  Time copy_least = std::chrono::milliseconds(5);  ///< A task that is held for less is not worth a copy.
};

struct Terms {
  int priority = 0;  ///< Higher ones first; equal ones in the order of submission.
  std::uint64_t bytes = 0;
  std::uint32_t retries = 0;  ///< Further runs of a task that fails or takes too long.
  Time timeout{0};            ///< Of one run. 0: none.
  bool beyond = false;        ///< Taken though there is no room: of a submitter that may not wait.
};

/// What the owner does. `stop`: the worker's run of the task is of no use; the owner ends it, if it can, and reports
/// finished() or died() in any case. `ended`: the task has this outcome.
struct Action {
  enum class Kind : std::uint8_t { stop, ended };
  Kind kind;
  WorkerNumber worker;  ///< Of stop.
  TaskNumber task;
  Outcome outcome;  ///< Of ended; of stop: timed_out or cancelled.
};
using Actions = std::vector<Action>;

/// Thread safety: none; one thread, or the caller's lock.
class Queue {
 public:
  explicit Queue(const Policy& policy);

  /// Nothing: the queue is full until a task ends. A task of more than bytes_max is taken when no other one is held.
  std::optional<TaskNumber> submit(const Terms& terms);
  /// True: it had not ended, and now it has. Workers that hold it are told to stop.
  bool cancel(TaskNumber task, Actions& actions);

  WorkerNumber join();
  /// The worker gets nothing more. When it holds nothing, its owner lets it go, and says died().
  void retire(WorkerNumber worker);
  void died(WorkerNumber worker, Actions& actions);

  /// Appends what the worker is to run next, behind what it holds. Nothing: it is hungry, and give() thinks of it.
  void take(WorkerNumber worker, Time now, std::vector<TaskNumber>& tasks);
  /// Calls `to` for hungry workers as long as there is something for them.
  void give(Time now, const std::function<void(WorkerNumber, const std::vector<TaskNumber>&)>& to);

  /// A task that `from` holds and has not begun is `to`'s from now on, behind what that holds.
  void hand_over(TaskNumber task, WorkerNumber from, WorkerNumber to, Time now);

  enum class Verdict : std::uint8_t {
    counts,  ///< The task has ended so.
    again,   ///< It runs again, or still runs elsewhere.
    stale,   ///< It has ended before, or the worker does not hold it. Nothing has changed for the task.
  };
  /// `outcome`: done, failed or timed_out. `ran`: how long the run took.
  Verdict finished(WorkerNumber worker, TaskNumber task, Outcome outcome, Time ran, Time now, Actions& actions);

  /// What the time brings. To be called at next_time() at the latest, with give() behind it.
  void tick(Time now, Actions& actions);
  /// Nothing: only events change something.
  [[nodiscard]] std::optional<Time> next_time() const;

  /// Where an owner may keep what it knows of the task: a small number, which no other task has at the same time.
  [[nodiscard]] static std::size_t place_of(TaskNumber task) noexcept;
  [[nodiscard]] bool has_room(std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::uint64_t held() const noexcept { return held_; }
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] std::uint64_t waiting() const noexcept { return waiting_count_; }
  [[nodiscard]] std::size_t workers() const noexcept { return workers_.size(); }
  /// Tasks that this worker has not finished.
  [[nodiscard]] std::size_t held_by(WorkerNumber worker) const;
  /// Its run is of a task that has ended.
  [[nodiscard]] bool runs_for_nothing(WorkerNumber worker) const;

 private:
  using Index = std::uint32_t;
  static constexpr Index no_index = UINT32_MAX;
  static constexpr WorkerNumber nobody = UINT32_MAX;

  enum class State : std::uint8_t { free, waiting, given };
  struct Task {
    Terms terms;
    std::uint64_t generation = 0;
    std::uint32_t retries_left = 0;
    std::uint32_t crashes = 0;
    State state = State::free;
    bool alone = false;   // under suspicion
    bool copied = false;  // not in given_
    std::array<WorkerNumber, 2> holders{nobody, nobody};
    WorkerNumber overdue = nobody;  // told to stop because of the time
    Time given{};                   // by the first of the holders
    std::uint32_t position = 1;     // among what that held then
    Index previous = no_index;      // in a list of waiting_, or in given_
    Index next = no_index;
  };
  struct List {
    Index first = no_index;
    Index last = no_index;
  };
  struct Worker {
    std::deque<TaskNumber> held;
    std::set<TaskNumber> cancelled;  // of these
    double mean = 0;                 // nanoseconds of a task. 0: not known
    bool hungry = false;
    bool retired = false;
    bool alone = false;  // runs a task under suspicion
  };

  [[nodiscard]] TaskNumber number_of(Index index) const noexcept;
  [[nodiscard]] Task* find(TaskNumber task) noexcept;
  [[nodiscard]] bool is_held(TaskNumber task) const noexcept;
  [[nodiscard]] Index index_of(const Task& task) const noexcept { return static_cast<Index>(&task - tasks_.data()); }
  void append(List& list, Task& task) noexcept;
  void prepend(List& list, Task& task) noexcept;
  void remove(List& list, Task& task) noexcept;
  void wait(Task& task, bool first);
  void stop_waiting(Task& task);
  void hold(WorkerNumber number, Worker& worker, Task& task, Time now);
  bool let_go(Task& task, WorkerNumber worker) noexcept;
  void begin_first(WorkerNumber number, const Worker& worker, Time now);
  void end_run(WorkerNumber worker, TaskNumber task);
  void end(Task& task, WorkerNumber but, Outcome stop_reason, Actions& actions);
  bool run_again(Task& task);
  [[nodiscard]] std::uint32_t target(const Worker& worker) const noexcept;
  [[nodiscard]] bool wants(const Worker& worker) const noexcept;
  void note_hungry(WorkerNumber number, Worker& worker);
  [[nodiscard]] std::optional<Time> copy_time() const noexcept;
  [[nodiscard]] bool anything_for_hungry(Time now) const noexcept;

  Policy policy_;
  std::vector<Task> tasks_;
  std::vector<Index> free_;
  std::map<int, List, std::greater<>> waiting_;  // by priority; no list is empty
  List given_;                                   // without copies, oldest first
  std::unordered_map<WorkerNumber, Worker> workers_;
  std::deque<WorkerNumber> hungry_;
  std::set<std::tuple<Time, TaskNumber, WorkerNumber>> deadlines_;  // of first tasks
  std::map<std::pair<TaskNumber, WorkerNumber>, Time> deadline_of_;
  std::uint64_t waiting_count_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t held_bytes_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t copies_ = 0;
  WorkerNumber next_worker_ = 0;
  double mean_ = 0;  // nanoseconds of a task, over all workers. 0: not known
};

}  // namespace aplib::farm
