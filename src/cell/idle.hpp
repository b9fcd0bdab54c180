// SPDX-License-Identifier: MIT
// Idle: holds what a processor could do next, that is, the tasks that are ready, sleep or wait for flags. When none is
// ready, it polls for a bounded time and then sleeps.
//
// Invariants: (1) a task is in the ready queue exactly when TaskControl::ready says so; (2) between
// Parker::announce() and sleep it looks once more for every kind of work that can come from outside, and whoever
// makes such work calls wake_if_asleep() afterwards, so no wake-up is lost; (3) a processor that sleeps without a
// timer and holds nothing back counts in Domain::sleepers.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "cell/cell.hpp"
#include "cell/core_sharing.hpp"
#include "cell/parker.hpp"
#include "cell/wait_length.hpp"
#include "task/ready_queue.hpp"

namespace aplib {

struct Domain;
class Network;
class Processor;

/// Measures how busy a processor has been lately. Cells move by this, not by how it is at a moment: cells that meet in
/// barriers leave every processor idle now and then, and moving one for that only makes the next barrier late. The
/// owner writes; anyone reads busy_share(). Values are hints, so every access is relaxed.
class LoadMeter {
 public:
  static constexpr auto window = std::chrono::milliseconds(2);

  /// Owner: has had nothing to do since `start`.
  void idle_since(Clock::time_point start) noexcept {
    idle_since_.store(start.time_since_epoch().count(), std::memory_order_relaxed);  // relaxed: a hint
  }

  /// Owner: has something to do again.
  void busy_from(Clock::time_point now) noexcept {
    const Clock::rep since = idle_since_.exchange(0, std::memory_order_relaxed);  // relaxed: a hint
    if (since != 0) idle_ += now.time_since_epoch() - Clock::duration(since);
    close_window(now);
  }

  /// Owner, while busy: the share of time it has been busy, in the current window if that is long enough, else in the
  /// last one.
  double own_share(Clock::time_point now) noexcept {
    close_window(now);
    return share_of(share_.load(std::memory_order_relaxed));  // relaxed: own value
  }

  /// Owner: a cell has come or gone, so earlier measurements say nothing. Counts as busy until the next window is full.
  void restart(Clock::time_point now) noexcept {
    start_ = now;
    idle_ = {};
    share_.store(1000, std::memory_order_relaxed);  // relaxed: a hint
  }

  /// Anyone: 0 (idle) .. 1 (busy).
  [[nodiscard]] double busy_share(Clock::time_point now) const noexcept {
    const Clock::rep since = idle_since_.load(std::memory_order_relaxed);  // relaxed: a hint
    if (since != 0 && now.time_since_epoch() - Clock::duration(since) >= window) return 0;
    return share_of(share_.load(std::memory_order_relaxed));  // relaxed: a hint
  }

  /// Anyone: it is idle at this moment.
  [[nodiscard]] bool idle_now() const noexcept {
    return idle_since_.load(std::memory_order_relaxed) != 0;
  }  // relaxed: a hint

 private:
  static double share_of(std::uint32_t per_mille) noexcept { return per_mille / 1000.0; }

  void close_window(Clock::time_point now) noexcept {
    const Clock::duration length = now - start_;
    if (length < window) return;
    const double idle = std::chrono::duration<double>(idle_) / std::chrono::duration<double>(length);
    const double busy = idle < 1 ? 1 - idle : 0;
    share_.store(static_cast<std::uint32_t>(busy * 1000), std::memory_order_relaxed);  // relaxed: a hint
    start_ = now;
    idle_ = {};
  }

  // owner only
  Clock::time_point start_{};
  Clock::duration idle_{};
  // for all
  std::atomic<Clock::rep> idle_since_{0};  // 0: busy
  std::atomic<std::uint32_t> share_{1000};
};

/// How a thread waits, as it has decided last.
struct WaitChoice {
  enum class Core : std::uint32_t { own, shared, computed_on };
  std::chrono::duration<std::uint32_t, std::micro> polls{};  ///< Before it sleeps.
  Core core = Core::own;
};

class Idle {
 public:
  Idle(Processor& here, Domain& domain);

  /// Before any carrier runs.
  void prepare();
  /// On the thread itself, first.
  void begin();

  // --- ready tasks
  void make_ready(TaskControl& task) noexcept {
    task.ready = true;
    ready_.push(task);
  }
  [[nodiscard]] bool has_ready() const noexcept { return !ready_.empty(); }
  [[nodiscard]] const ReadyQueue<TaskControl>& ready() const noexcept { return ready_; }
  /// The next ready task, out of the queue; null: there is none.
  TaskControl* pop_ready() noexcept { return ready_.pop(); }
  /// Polls for a bounded time, then sleeps, until a task is ready. Returns the task, out of the queue; null: the
  /// machine is over, or another thread wants the processor (Baton). Runs on the stack of `self`, the task that waits
  /// (null: on the thread's own).
  TaskControl* await_ready(TaskControl* self) noexcept;

  /// Whether a task that has looked so often for what is not there shall yield, so that others run that may bring it.
  [[nodiscard]] bool shall_yield_after(std::uint8_t vain_looks) const noexcept {
    return vain_looks >= vain_looks_max || sharing_.is_shared();
  }
  /// A task looks again and again for what is not there: others may have the core now and then.
  void look_in_vain() noexcept {
    if (sharing_.is_shared() || ++vain_looks_ % vain_looks_per_clock_look == 0) offer_core_in_loop();
  }

  // --- tasks that sleep
  void add_timer(Clock::time_point deadline, TaskControl& task) {
    timers_.push_back(Timer{deadline, &task, timer_order_++});
    std::push_heap(timers_.begin(), timers_.end());
  }
  [[nodiscard]] bool has_timers() const noexcept { return !timers_.empty(); }
  void expire_timers(Clock::time_point now) noexcept;
  /// The time of the last look at the clock.
  [[nodiscard]] Clock::time_point coarse_now() const noexcept { return coarse_now_; }

  // --- tasks that wait for flags
  void add_watch(TaskControl& task);
  void remove_watch(const TaskControl& task) noexcept {
    std::erase_if(watches_, [&](const Watching& each) { return each.task == &task; });
  }
  [[nodiscard]] bool has_watches() const noexcept { return !watches_.empty(); }
  void check_watches() noexcept;

  // --- cells that change processor, and the end
  /// Moves all tasks of a cell from here to its parcel. Throws, if at all, before anything has changed.
  void pack(Cell& cell);
  /// Makes room for a cell's parcel; then unpack() does not throw.
  void make_room_for(const Cell& cell);
  void unpack(Cell& cell);
  /// The machine stops: tasks no longer wait for timers and flags.
  void forget_waits() noexcept {
    timers_.clear();
    watches_.clear();
  }
  [[nodiscard]] LoadMeter& load() noexcept { return load_; }
  [[nodiscard]] const LoadMeter& load() const noexcept { return load_; }
  /// [any thread] A hint.
  [[nodiscard]] WaitChoice choice() const noexcept { return choice_.load(std::memory_order_relaxed); }  // relaxed: so
  [[nodiscard]] Parker<>& parker() noexcept { return parker_; }                                         // [any thread]

 private:
  struct Watching {
    TaskControl* task;
    const void* subject;  // of its condition
  };

  static constexpr std::uint8_t vain_looks_max = 4;
  static constexpr std::uint32_t vain_looks_per_clock_look = 16;

  [[nodiscard]] std::chrono::nanoseconds poll_time(Clock::time_point now) const noexcept;
  void show_choice(Clock::time_point now) noexcept;
  void learn(Clock::duration waited, bool has_slept) noexcept;
  void offer_core_in_loop() noexcept;
  Clock::time_point offer_core(Clock::time_point now, Clock::duration& others) noexcept;
  void park() noexcept;
  void sleep(bool in_network, bool held) noexcept;
  void announce_watches(bool sleeps) noexcept;
  [[nodiscard]] bool watches_memory() const noexcept;
  void pause() noexcept;
  void show_idle(Clock::time_point since) noexcept;
  void show_busy(Clock::time_point now) noexcept;
  bool deadlocked(std::uint64_t sleepers_word);

  ReadyQueue<TaskControl> ready_;
  Processor& here_;
  Domain& domain_;
  Network* network_ = nullptr;
  std::uint32_t network_lately_ = 0;  // polls for which the network is worth every look: something has come just now
  bool idle_flag_ = false;
  std::vector<Timer> timers_;  // a heap
  std::uint64_t timer_order_ = 0;
  std::vector<Watching> watches_;
  Clock::time_point coarse_now_{};
  CoreSharing sharing_;
  WaitLength length_;
  std::uint32_t vain_looks_ = 0;
  Parker<> parker_;
  alignas(cache_pair_bytes) LoadMeter load_;
  std::atomic<WaitChoice> choice_{};
  static_assert(std::atomic<WaitChoice>::is_always_lock_free);
};

}  // namespace aplib
