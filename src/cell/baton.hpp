// SPDX-License-Identifier: MIT
// Baton: how the threads of a cell's program take turns at the cell's processor. A program that runs on one thread
// needs none: its task runs on the processor's thread, which is in our code during a call, and in the program's
// otherwise. When the program makes threads and says that they will call, too, the processor is no longer its thread's.
// Whoever calls, the main thread as any other, takes the baton, is the processor while the call lasts, and lays the
// baton down. So a call costs no switch of threads where nobody else is in one, and what the processor owns needs no
// lock.
//
// A call that waits lays the baton down, too, where another thread wants it. If there is none, it keeps the baton,
// polls, and sleeps as the processor does.
//
// A baton that is laid down is free: whoever comes first takes it. To hand it to a thread that sleeps, or that the
// system has taken off its core, would let all others wait until that thread runs, at every call (a convoy). So
// one of those that stand in line is woken to look for it; it is given the baton only when it has stood there for a
// millisecond.
//
// A thread whose call waits, and which lays the baton down for another, stands by: it looks for the baton again in a
// moment, so that the other one, which seldom stays away for long, need not wake anybody when it leaves its call. Where
// threads wait for each other's messages, one wake-up a message is left.
//
// A thread other than the main one has a task of the cell while its call lasts, a *guest*: it runs on the thread's own
// stack and is never switched to. So a cell with a baton has its processor for itself, and no tasks but the main one
// and guests.
//
// Invariants: (1) one thread at most has the baton, and only that touches what belongs to the processor; (2) as long as
// a call waits, somebody has the baton, is awake and looks for it, or stands by and looks for it in a moment; (3)
// Processor::is_wanted() says whether a thread wants the baton, other than to poll.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cell/cell.hpp"

namespace aplib {

class Baton {
 public:
  /// `main`: the running task, the only one of its cell, which is the only one of its processor. The caller has the
  /// baton.
  explicit Baton(TaskControl& main);
  ~Baton();
  Baton(const Baton&) = delete;
  Baton& operator=(const Baton&) = delete;

  /// Becomes the processor, for a call. False: it is closed. Throws Error(exhausted). Call from: threads of the cell's
  /// program that do not have the baton.
  [[nodiscard]] bool enter();
  /// Call from: who has it; the end of a call.
  void leave() noexcept;
  [[nodiscard]] const TaskControl& main_task() const noexcept { return main_; }
  [[nodiscard]] bool is_main_thread() const noexcept { return pthread_equal(pthread_self(), main_thread_) != 0; }

  /// No other thread is in a call. REQUIRES: closed.
  [[nodiscard]] bool is_idle() const noexcept { return calls_ == 0; }

  /// Processor::dispatch(): returns when `self` is ready, or runs on because nobody else wants to.
  void dispatch(TaskControl& self) noexcept;

  /// The main task has left the program, or leaves it for good: the processor is its thread's again. Calls of other
  /// threads that wait never return, unless the machine stops: then they have returned. Call from: the main thread,
  /// with or without the baton.
  void close() noexcept;

 private:
  /// What a thread that waits for the baton is told.
  enum class Sign : std::uint32_t {
    none,
    look,     ///< It is free, or was a moment ago: look for it.
    given,    ///< You have it.
    refused,  ///< It is closed.
    asleep    ///< None, and the thread sleeps.
  };
  /// How long to wait for a sign.
  struct Rest {
    std::uint32_t spins = 0;
    std::optional<std::chrono::nanoseconds> sleep{};  ///< Then; nothing: for ever.
  };
  /// A thread that waits for the baton.
  struct Turn {
    std::atomic<std::uint32_t> sign{0};  ///< A Sign.
    Clock::time_point since;             ///< It has stood in line.
    bool wants = false;                  ///< To begin a call, or to go on with one whose wait has ended; else to poll.
    bool stands_by = false;              ///< It is in pollers_, and looks for the baton in a moment.
    Turn* next = nullptr;

    void give(Sign what) noexcept;
    /// None: the rest is over.
    [[nodiscard]] Sign await(const Rest& rest) noexcept;
  };
  struct Line {
    Turn* first = nullptr;
    Turn* last = nullptr;

    void push(Turn& turn) noexcept;
    void push_front(Turn& turn) noexcept;
    Turn* pop() noexcept;
    bool remove(const Turn& turn) noexcept;
  };
  struct Guest : TaskControl {
    Turn turn;
  };

  Turn& turn_of(TaskControl& task) noexcept;
  Guest& free_guest();
  void take_over(TaskControl& task) noexcept;
  void dismiss_guests() noexcept;

  [[nodiscard]] bool try_take() noexcept;
  [[nodiscard]] bool look_for_it() noexcept;
  /// For a call that begins or goes on. False: it is closed.
  [[nodiscard]] bool take(Turn& turn) noexcept;
  /// Returns with the baton; false: it is closed. `looks`: the thread is one of awake_; else it stands in a line, and
  /// perhaps by.
  [[nodiscard]] bool await_turn(Turn& turn, bool looks, bool stands_by) noexcept;
  [[nodiscard]] bool ends_standby(Turn& turn) noexcept;
  // All seven require that mutex_ is held.
  [[nodiscard]] bool try_take_at_last() noexcept;
  void stand_in_line(Turn& turn, bool again, Clock::time_point now) noexcept;
  void stand_by(Turn& turn, bool does) noexcept;
  void want(int more) noexcept;
  void show_attention() noexcept;
  void call_ready(TaskControl& task) noexcept;
  /// Whoever has the baton has it no longer. Whom to give which sign once mutex_ is free; null: nobody.
  [[nodiscard]] std::pair<Turn*, Sign> lay_down() noexcept;

  Processor& processor_;
  TaskControl& main_;
  const pthread_t main_thread_;
  const std::uint32_t spins_;
  const Rest standby_;
  Turn main_turn_;
  // Of who has the baton.
  std::vector<std::unique_ptr<Guest>> guests_;
  std::vector<Guest*> free_guests_;
  std::uint32_t calls_ = 0;  // of guests, that have begun and not ended
  std::uint32_t waits_ = 0;  // calls that wait, and are not the one that has the baton
  std::uint32_t leaves_ = 0;

  std::atomic<std::uint32_t> state_;  // bits, see baton.cpp

  std::mutex mutex_;  // guards what follows, and is held for a few instructions, by who has waited, or lets others in
  bool is_closed_ = false;
  bool is_starving_ = false;  // the first in line_ has stood there for long
  std::uint32_t awake_ = 0;   // threads that look for the baton, and stand in no line
  std::int32_t standing_by_ = 0;
  Line line_;     // of those that want it
  Line pollers_;  // of those whose calls wait
};

}  // namespace aplib
