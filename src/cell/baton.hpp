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
// Who gets the baton next is the affair of Turns.
//
// A thread other than the main one has a task of the cell while its call lasts, a *guest*: it runs on the thread's own
// stack and is never switched to. So a cell with a baton has its processor for itself, and no tasks but the main one
// and guests.
//
// Invariant: only who has the baton touches what belongs to the processor.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "arch/cpu.hpp"
#include "base/os/thread.hpp"
#include "cell/cell.hpp"
#include "cell/turns.hpp"

namespace aplib {

/// The real operating system behind Turns.
struct TurnsOs {
  using Mutex = std::mutex;

  Processor& processor;

  void wake_poller() const noexcept;
  [[nodiscard]] Clock::time_point now() const noexcept { return Clock::now(); }
  void relax() const noexcept { cpu_relax(); }
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
            std::optional<std::chrono::nanoseconds> timeout) const noexcept {
    os::futex_wait(word, expected, timeout);
  }
  void wake(std::atomic<std::uint32_t>& word) const noexcept { os::futex_wake(word); }
};

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
  /// The same where the call does not end: its thread stays in code of the program that the call has called. Call from:
  /// who has the baton, and is not the main thread. Async-signal-safe in such code.
  void leave_for_ever() noexcept;
  /// The caller's call calls a function of the program; until take_back(), the thread is not the processor, and the
  /// main thread may close the baton. Then take_back() does not return, and lend() may not either. Call from: who has
  /// the baton, and is not the main thread; take_back() from the same thread.
  void lend() noexcept;
  void take_back() noexcept;
  [[nodiscard]] const TaskControl& main_task() const noexcept { return main_; }
  [[nodiscard]] bool is_main_thread() const noexcept { return pthread_equal(pthread_self(), main_thread_) != 0; }

  /// No other thread is in a call. REQUIRES: closed.
  [[nodiscard]] bool is_idle() const noexcept { return calls_ == 0 && lost_calls_ == 0; }

  /// Processor::dispatch(): returns when `self` is ready, or runs on because nobody else wants to.
  void dispatch(TaskControl& self) noexcept;

  /// The main task has left the program, or leaves it for good: the processor is its thread's again. Calls of other
  /// threads that wait never return, unless the machine stops: then they have returned. Nor do those that have lent the
  /// baton for longer than a moment. Call from: the main thread, with or without the baton.
  void close() noexcept;

 private:
  using Turn = Turns<std::atomic, TurnsOs>::Turn;
  struct Guest : TaskControl {
    Turn turn;
  };

  /// The turns of the tasks whose waits have ended, one a call; null: there is none more.
  struct ReadyTurns {
    Baton& baton;
    TaskControl* next;
    Turn* operator()() noexcept;
  };

  Turn& turn_of(TaskControl& task) noexcept;
  Guest& free_guest();
  void take_over(TaskControl& task) noexcept;
  void lay_down() noexcept;
  void enter_to_close() noexcept;
  void dismiss_guests() noexcept;

  Processor& processor_;
  TaskControl& main_;
  const pthread_t main_thread_;
  Turns<std::atomic, TurnsOs> turns_;
  Turn main_turn_;
  enum class Lent : std::uint8_t { no, yes, for_ever };
  std::atomic<Lent> lent_{Lent::no};
  std::atomic<bool> closes_{false};  // the main thread does not wait any more for who has lent it
  // Of who has the baton.
  std::vector<std::unique_ptr<Guest>> guests_;
  std::vector<Guest*> free_guests_;
  std::uint32_t calls_ = 0;       // of guests, that have begun and not ended
  std::uint32_t lost_calls_ = 0;  // that never will
  std::uint32_t leaves_ = 0;
};

}  // namespace aplib
