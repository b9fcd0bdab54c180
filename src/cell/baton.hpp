// SPDX-License-Identifier: MIT
// Baton: how the threads of a cell's program take turns at the cell's processor. A program that runs on one thread
// needs none: its task runs on the processor's thread, which is in our code during a call, and in the program's
// otherwise. When the program makes threads and says that they will call, too, the processor is no longer its thread's.
// Whoever calls, the main thread as any other, takes the baton, is the processor while the call lasts, and gives the
// baton on. So a call costs no switch of threads where nobody else is in one, and what the processor owns needs no
// lock.
//
// A call that waits gives the baton on, too: to the thread whose wait has ended, else to one that wants to begin a
// call. If there is none, it keeps the baton, polls, and sleeps as the processor does.
//
// A thread other than the main one has a task of the cell while its call lasts, a *guest*: it runs on the thread's own
// stack and is never switched to. So a cell with a baton has its processor for itself, and no tasks but the main one
// and guests.
//
// Invariants: (1) one thread at most has the baton, and only that touches what belongs to the processor; (2) as long as
// a call waits, somebody has the baton, hence polls; (3) Processor::wanted_ says whether a thread stands in line.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
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
  /// A thread that waits for the baton.
  struct Turn {
    std::atomic<std::uint32_t> given{0};  ///< 0: no; 1: yes; 2: no, and the thread sleeps.
    bool runs = false;                    ///< It gets the baton because its task is ready.
    Turn* next = nullptr;

    void give() noexcept;
    void await(std::uint32_t spins) noexcept;
  };
  struct Line {
    Turn* first = nullptr;
    Turn* last = nullptr;

    void push(Turn& turn) noexcept;
    Turn* pop() noexcept;
    void remove(const Turn& turn) noexcept;
  };
  struct Guest : TaskControl {
    Turn turn;
  };

  Turn& turn_of(TaskControl& task) noexcept;
  Guest& free_guest();
  void take_over(TaskControl& task) noexcept;
  /// Whose turn it is next; null: nobody's. `ready`: a task that is, out of the queue; null: there is none.
  Turn* choose(TaskControl* ready) noexcept;
  void dismiss_guests() noexcept;

  Processor& processor_;
  TaskControl& main_;
  const pthread_t main_thread_;
  const std::uint32_t spins_;
  Turn main_turn_;
  // Of who has the baton.
  std::vector<std::unique_ptr<Guest>> guests_;
  std::vector<Guest*> free_guests_;
  std::uint32_t calls_ = 0;  // of guests, that have begun and not ended

  std::mutex mutex_;      // guards what follows, and is held for a few instructions
  bool is_taken_ = true;  // somebody has the baton, or has just been given it
  bool is_closed_ = false;
  Line line_;     // of those that want to begin a call
  Line waiting_;  // of those whose calls wait
};

}  // namespace aplib
