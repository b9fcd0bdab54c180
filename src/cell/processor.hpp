// SPDX-License-Identifier: MIT
// Processor: an operating-system thread that carries cells. It runs their ready tasks round-robin, polls the rings that
// lead to it, and sleeps when there is nothing to do. Only its own thread uses its members, except where said.
//
// A task that must wait does not switch to a scheduler. It looks for the next ready task itself. If there is none, it
// polls on its own stack until there is one; often that is the task itself, and no switch happens at all. The thread's
// own stack is used only at the start, and when a task has ended and nothing else is ready.
//
// The parts have files of their own: what goes out (outbound.hpp), what comes in and finds its receive (inbound.hpp),
// what is ready and how it waits (idle.hpp), the part in collectives (collectives.hpp), and cells that change processor
// (mover.hpp). This file has the thread, the switch from task to task, what tasks call, and the life of a task.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "aplib/export.hpp"
#include "aplib/message.hpp"
#include "cell/collectives.hpp"
#include "cell/domain.hpp"
#include "cell/idle.hpp"
#include "cell/inbound.hpp"
#include "cell/mover.hpp"
#include "cell/outbound.hpp"

namespace aplib {

class Network;

enum class ProcessorRole : std::uint8_t {
  carrier,  ///< A thread that carries cells.
  host,     ///< The thread of the host program.
  /// No thread: what comes from other processes (Network). All its functions are called by whoever polls the
  /// network.
  network,
};

namespace detail {
// Initial-exec: one load relative to the thread pointer, also from inside the shared library.
[[gnu::tls_model("initial-exec")]] APLIB_API extern constinit thread_local Processor* current_processor;
}  // namespace detail

class Processor {
 public:
  Processor(Domain& domain, std::uint32_t index, ProcessorRole role);
  ~Processor();
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;

  /// Sizes tables for the domain's grid and processors. Before any carrier runs.
  void prepare();
  /// Runs tasks until the machine is over. Call on the thread that is to be this processor.
  void run();

  /// The processor of the calling thread, or null. Never call across a switch and keep the result.
  static Processor* current() noexcept { return detail::current_processor; }
  /// The calling thread is the processor from here on, and `task` runs.
  void take_over(TaskControl& task) noexcept;
  [[nodiscard]] Domain& domain() noexcept { return domain_; }
  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
  [[nodiscard]] bool is_host() const noexcept { return role_ == ProcessorRole::host; }
  [[nodiscard]] bool is_network() const noexcept { return role_ == ProcessorRole::network; }
  // relaxed: own value
  [[nodiscard]] TaskControl* running() const noexcept { return running_.load(std::memory_order_relaxed); }
  /// Another thread: the task that runs here, unless switches() changes before the caller has looked at it.
  [[nodiscard]] const TaskControl* glimpse() const noexcept {
    return running_.load(std::memory_order_acquire);  // acquire: the task's making
  }
  /// Changes whenever a task waits, lets others run, or ends. [any thread]
  [[nodiscard]] std::uint32_t switches() const noexcept {
    return switches_.load(std::memory_order_relaxed);  // relaxed: a measure
  }
  /// So many of the cells that it carries have not ended. [any thread]
  [[nodiscard]] std::uint32_t live_residents() const noexcept {
    return live_residents_.load(std::memory_order_relaxed);  // relaxed: a measure
  }
  /// The system's number of its thread; 0 before it runs. [any thread]
  [[nodiscard]] pid_t thread() const noexcept {
    return thread_number_.load(std::memory_order_relaxed);  // relaxed: nothing is handed over
  }
  [[nodiscard]] BufferPool& pool() noexcept { return *pool_; }
  /// Of its thread, once that runs. Its places never change.
  [[nodiscard]] const ThreadState& thread_state() const noexcept { return thread_; }
  [[nodiscard]] UnreadMeter<>& unread() noexcept { return unread_; }  // bytes(): [any thread]
  [[nodiscard]] Outbound& outbound() noexcept { return outbound_; }
  [[nodiscard]] Inbound& inbound() noexcept { return inbound_; }
  [[nodiscard]] Idle& idle() noexcept { return idle_; }
  [[nodiscard]] const Idle& idle() const noexcept { return idle_; }
  [[nodiscard]] Collectives& collectives() noexcept { return collectives_; }
  [[nodiscard]] Mover& mover() noexcept { return mover_; }
  Parker<>& parker() noexcept { return idle_.parker(); }  // [any thread]
  /// The cells it carries, ascending; the host's processor: none.
  [[nodiscard]] std::span<const std::uint32_t> residents() const noexcept { return residents_; }

  // --- what tasks call; those that are static may return on another processor, with the task's cell
  /// Every call that may wait asks this before it waits and when a wait has ended. When the machine stops, the calling
  /// task must end: this throws Stopped. A task that unwinds already must not throw, because the call is a
  /// destructor's: then this is true, and the call returns without doing more. Relaxed: noticed sooner or later.
  [[nodiscard]] bool stops() const {
    if (!domain_.stopping.load(std::memory_order_relaxed)) [[likely]]
      return false;
    return end_calling_task();
  }
  /// The same, when the machine is known to stop.
  [[gnu::cold, gnu::noinline]] static bool end_calling_task();
  /// A task that calls ends by an exception of ours: what reads and writes its objects ends before they are gone.
  static void prepare_to_unwind() noexcept;
  /// Gives way until someone makes `self` ready. Says how the wait ended.
  static Wake wait(TaskControl& self, WaitFor what, const char* call) noexcept;
  /// Lets others run once.
  static void yield(TaskControl& self);
  /// The same in the middle of the task's program, whose thread a signal has stopped. Its cell stays on this thread
  /// meanwhile. REQUIRES: the program is in no call of ours. Call from: a signal handler on the task's stack.
  static void give_way(TaskControl& self) noexcept;
  static void sleep_until(TaskControl& self, Clock::time_point deadline, const char* call);
  /// Waits until the condition holds. Who changes something about it calls Domain::wake_carriers() afterwards.
  /// Wake::stopping: the caller asks stops() next.
  static Wake wait_condition(TaskControl& self, const char* call, const Condition& condition);
  static void join(TaskControl& self, std::uint32_t id);
  /// Waits until the flag has reached `count` (Watch). False: the machine stops, see stops().
  static bool wait_flag(TaskControl& self, const char* call, const std::int32_t* flag, std::int32_t count);
  /// Host: waits until every program started on the cells has ended.
  static void wait_for_cells(TaskControl& self, const char* call);
  static Operand collective(TaskControl& self, const CollectiveCall& what, const Operand& value,
                            void* broadcast_buffer) {
    return Collectives::call(self, what, value, broadcast_buffer);
  }
  /// Inlined: a message to a waiting task of this processor, or by a ring, keeps fewer registers then.
  [[gnu::always_inline]] void send(TaskControl& self, const char* call, std::uint32_t cell,
                                   std::span<const std::byte> bytes, const To& to, std::uint32_t space) {
    if (cell >= cell_limit_ || !is_in_range(to)) [[unlikely]]
      return send_to_host(call, cell, bytes, to, space);
    send_checked(call, cell, aplib::index(to.task),
                 MatchKey::make(space, self.cell->id, self.id, static_cast<std::uint32_t>(to.type)), bytes);
  }
  /// The same with a key of the front end's own layout, which has this cell as its source. REQUIRES: task <=
  /// task_id_max.
  APLIB_API void send_with_key(TaskControl& self, const char* call, std::uint32_t cell,
                               std::span<const std::byte> bytes, std::uint32_t task, std::uint64_t key);
  /// Waits for a match of `posted.wish`, stores it as `posted` says. Returns Wake::done when posted.key and
  /// posted.bytes are valid.
  static Wake receive(TaskControl& self, const char* call, bool closed_when_cells_end) {
    return self.cell->processor->inbound_.receive(self, call, closed_when_cells_end);
  }
  /// Whether a message is in the mailbox of `owner`, a task of the same cell.
  bool probe(TaskControl& self, const TaskControl& owner, const MatchWish& wish);

  /// std::terminate() was called. Where that came of an exception that ends the calling task (it met a noexcept
  /// function, or one without unwind tables), the task ends here: its frames stay as they are. Else returns.
  static void end_terminating_task() noexcept;

  // --- the life of tasks
  /// The new task is ready on return. Throws what moving and inheriting throw, and Error(exhausted); then there is
  /// no task.
  TaskControl& spawn(Cell& cell, std::uint32_t id, const NewTask& what);
  void make_ready(TaskControl& task) noexcept { idle_.make_ready(task); }
  void start_program(Cell& cell, const CellProgram& program);
  /// Frees an ended, joined task.
  void bury(TaskControl& task) noexcept;

  // --- for the parts
  /// Looks at all rings that lead here once, and takes what is there until a task became ready.
  void poll() noexcept {
    if (has_to_poll()) inbound_.poll();
  }
  /// There are rings that lead here, or messages that did not fit into one that leads away.
  [[nodiscard]] bool has_to_poll() const noexcept { return inbound_.has_rings() || outbound_.backlog_count() != 0; }
  /// False: another thread is at it.
  bool poll_network() noexcept;
  /// Before a task runs on, when the network has not been polled for it.
  void look_after_network() noexcept;
  /// What tasks of this processor wait for may have come: makes them ready.
  void look_around() noexcept {
    poll();
    if (collectives_.has_waits()) collectives_.check();
    if (idle_.has_watches()) idle_.check_watches();
  }
  [[nodiscard]] bool has_seen_stop() const noexcept { return stop_seen_; }
  /// Threads of a program take turns at being this processor; null: it has a thread of its own.
  [[nodiscard]] Baton* baton() const noexcept { return baton_; }
  /// One of them waits for its turn. [any thread]
  [[nodiscard]] bool is_wanted() const noexcept {
    return wanted_.load(std::memory_order_relaxed) != 0;  // relaxed: the lock that it is set under orders the rest
  }
  void stop_tasks();
  void remove_resident(std::uint32_t cell);
  /// Makes add_resident() one that does not throw.
  void make_room_for_resident() { residents_.reserve(residents_.size() + 1); }
  void add_resident(std::uint32_t cell);
  /// The last task of a cell of ours has ended.
  void end_cell(Cell& cell);

 private:
  friend class Baton;
  friend struct Domain;
  friend void task_body(Flow& flow);

  // What is done while a task waits concerns others, too. An error there ends the machine (Domain::guarded); it is
  // never thrown into the task that happens to wait.
  void dispatch(TaskControl& self) noexcept;
  [[nodiscard]] static bool is_in_range(const To& to) noexcept {
    return static_cast<std::uint32_t>(to.type) <= static_cast<std::uint32_t>(message_type_max) &&
           aplib::index(to.task) <= task_id_max;
  }
  [[gnu::always_inline]] void send_checked(const char* call, std::uint32_t target, std::uint32_t task,
                                           std::uint64_t key, std::span<const std::byte> bytes) {
    if (bytes.size() <= MessageRing::inline_bytes_max && !domain_.send_gate.closed()) [[likely]] {
      const std::uint32_t processor = outbound_.route(target);
      if (processor != index_) {
        if (outbound_.try_small(processor, target, task, key, bytes)) [[likely]]
          return;
      } else if (mover_.protocol().arriving() != target) [[likely]] {
        Cell& cell = *domain_.cells[target];
        if (Inbound::give_at_once(idle_, cell.tasks.find(task), key, bytes)) [[likely]]
          return;
        return take_unawaited(cell, task, key, bytes);
      }
    }
    send_otherwise(call, target, task, key, bytes);
  }
  // What send() passes on, with no more arguments than registers have room for, so that it can jump there: a message
  // to the host program, or one that cannot be sent,
  [[gnu::noinline]] static void send_to_host(const char* call, std::uint32_t cell, std::span<const std::byte> bytes,
                                             To to, std::uint32_t space);
  // one to a cell of ours whose task does not block in a receive for it,
  [[gnu::noinline]] void take_unawaited(Cell& cell, std::uint32_t task, std::uint64_t key,
                                        std::span<const std::byte> bytes);
  // and all others.
  [[gnu::noinline]] static void send_otherwise(const char* call, std::uint32_t target, std::uint32_t task,
                                               std::uint64_t key, std::span<const std::byte> bytes);
  void route_message(TaskControl& self, const char* call, std::uint32_t target, std::uint32_t task, std::uint64_t key,
                     std::span<const std::byte> bytes);
  static void send_when_open(TaskControl& self, const char* call, std::uint32_t target, std::uint32_t task,
                             std::uint64_t key, std::span<const std::byte> bytes);
  [[nodiscard]] bool spin_on_watch(const TaskControl& self) const noexcept;
  ThreadState& switch_to_task(Flow& from, TaskControl& to, bool ends);
  void landed() noexcept;
  void end_task(TaskControl& self);
  void drop_live_cell() noexcept;
  void count_live_residents() noexcept;
  std::uint32_t count_switch(std::uint32_t by) noexcept {
    const std::uint32_t switches = switches_.load(std::memory_order_relaxed) + by;  // relaxed: only we write it
    switches_.store(switches, std::memory_order_relaxed);                           // relaxed: a measure
    return switches;
  }
  void check_canary(const TaskControl& task);

  // hot: read or written on every message
  Domain& domain_;
  std::uint32_t index_;
  std::uint32_t cell_limit_ = 0;  // cells that can be sent to; 0 before the host program has started any
  std::atomic<TaskControl*> running_{nullptr};
  BufferPool* pool_ = nullptr;
  Network* network_ = nullptr;  // null: one process
  std::uint32_t network_index_ = ~0U;
  std::atomic<std::uint32_t> switches_{0};
  Outbound outbound_;
  ThreadState thread_;
  Idle idle_;
  Inbound inbound_;
  Mover mover_;

  Flow base_;                            // the thread's own stack
  std::uint64_t last_network_look_ = 0;  // in cycles()
  ProcessorRole role_;
  bool stop_seen_ = false;
  std::atomic<pid_t> thread_number_{0};
  std::atomic<std::uint32_t> live_residents_{0};
  std::atomic<std::uint32_t> wanted_{0};  // by so many threads; Baton writes
  Baton* baton_ = nullptr;
  std::vector<std::uint32_t> residents_;  // cells we carry, ascending
  UnreadMeter<> unread_;
  Collectives collectives_;
};

/// The task that runs on this thread; null: none.
[[gnu::always_inline]] inline TaskControl* running_task() noexcept {
  const Processor* const processor = Processor::current();
  return processor != nullptr ? processor->running() : nullptr;
}

inline bool Domain::some_carrier_sleeps() const noexcept {
  os.waker_fence();  // what was written before the look at them; see Parker
  for (std::uint32_t p = 0; p < carriers; ++p) {
    if (processors[p]->parker().is_asleep()) return true;
  }
  return false;
}

inline void Domain::wake_watcher(const Cell& cell) noexcept {
  os.waker_fence();  // what was written before the look at the watcher; see Watch
  const std::uint32_t watcher = cell.watcher.load(std::memory_order_relaxed);  // relaxed: the fence orders it
  if (watcher != 0) processors[watcher - 1]->parker().wake_if_asleep();
}

}  // namespace aplib
