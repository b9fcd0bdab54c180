// SPDX-License-Identifier: MIT
// How bound functions wait for what the system, another process or another cell brings about. A call that would block
// the thread stops all cells that the thread carries, perhaps the one that is waited for. So a task tries, lets others
// run, and looks again, first at once, then at intervals that grow with the wait: at most an eighth of it is lost.
// Where the caller has its thread for itself, it blocks as ever.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>

#include "loader/instance.hpp"
#include "loader/libc/signals.hpp"

namespace aplib::loader::libc {

using WaitClock = std::chrono::steady_clock;

inline constexpr std::chrono::seconds longest_wait{3'000'000'000};  // more than a program waits, less than clocks count

inline bool is_time(const timespec& time) noexcept {
  return time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000;
}
/// At most longest_wait.
inline std::chrono::nanoseconds to_duration(const timespec& time) noexcept {
  const std::chrono::seconds whole(time.tv_sec);
  return whole >= longest_wait ? longest_wait : whole + std::chrono::nanoseconds(time.tv_nsec);
}

/// The point of time that is `time` away; null: none.
std::optional<WaitClock::time_point> deadline_in(const timespec* time) noexcept;
/// `time` of `clock` as a point of ours, as things are now.
WaitClock::time_point deadline_at(clockid_t clock, const timespec& time) noexcept;

/// Lets others run: at once, and for a pause when it is positive. What stops the machine leaves the program by a jump,
/// for libc declares such functions nothrow. No cancellation point.
void let_others_run(Instance& instance, std::chrono::nanoseconds pause) noexcept;

enum class Waited : unsigned char { done, late, interrupted };

/// Sleeps, or yields where the duration is 0. `interrupted`: a handler of the program's has run, and this ends sleeps.
Waited sleep_in_turn(Instance& instance, std::chrono::nanoseconds duration);

/// The instance that calls, where it must not block its thread; else null: other cells run there, or its timers send
/// signals. `caller`: as calling() takes it.
Instance* sharing(const void* caller) noexcept;
/// The same of the running flow's instance.
Instance* sharing_flow(Instance& instance) noexcept;

// Signals that come to the process from outside, for the programs of all cells (timers.cpp).

/// The program handles the signal, or ignores it; or does not any more. Those that batch systems send before the end
/// count: SIGUSR1, SIGUSR2, SIGTERM.
void note_outside_signal(Instance& instance, int signal, bool handles);
/// The program waits for signals of `set`, or looks for them: it takes those of the three as if it had handlers.
void note_awaited_signals(Instance& instance, const sigset_t& set);
/// The program handles such a one, or has asked mq_notify() for one: others than its timers may send it some.
bool takes_outside_signals(Instance& instance) noexcept;

/// It has had timers, perhaps (timers.cpp).
bool has_timers(Instance& instance) noexcept;
/// When the next of the instance's timers is due.
std::optional<WaitClock::time_point> next_timer(Instance& instance) noexcept;
/// Leaves the signals of those that are due. May end the machine, as a signal without a handler does.
void expire_timers(Instance& instance);

/// The program's flows take the signals that have come for them, soon. False: no thread can be had. May throw
/// std::bad_alloc.
bool remind_of_signals(Instance& instance);
/// At the program's end: none is due any more.
void stop_timers(Instance& instance) noexcept;

/// One wait: pass() between two looks.
class Patience {
 public:
  explicit Patience(Instance& instance) noexcept : instance_(instance) {}

  void pass(std::optional<WaitClock::time_point> deadline);

 private:
  Instance& instance_;
  unsigned looks_ = 0;
  WaitClock::time_point since_{};
};

/// Lets others run until look() says true. `interrupted`: the flow has run a handler that ends the wait. One that a
/// handler may end is a cancellation point, as in POSIX.
template <class Look>
Waited wait_in_turn(Instance& instance, std::optional<WaitClock::time_point> deadline, EndedBy by, Look look) {
  if (by != EndedBy::nothing) pthread_testcancel();
  if (look()) return Waited::done;
  const unsigned long before = handlers_run(by);
  for (Patience patience(instance);;) {
    if (deadline && WaitClock::now() >= *deadline) return Waited::late;
    patience.pass(deadline);
    if (by != EndedBy::nothing) pthread_testcancel();
    if (look()) return Waited::done;
    if (handlers_run(by) != before) return Waited::interrupted;
  }
}

/// Before a call that may block on this descriptor: returns when it would not, or the call is to say so. False: a
/// handler of the program's has run; errno is EINTR. `events`: as poll() has them.
bool await_descriptor(Instance& instance, int descriptor, short events);
/// The same for read() and writev() of any descriptor; files never block. `caller`: as calling() takes it.
bool await_stream(const void* caller, int descriptor, short events);
/// Opening this would wait for the other end of a FIFO, which must not block the thread.
bool is_awaited_fifo(Instance& instance, int folder, const char* path, int flags) noexcept;
/// openat() of `instance`; null: of none.
int open_in_turn(Instance* instance, int folder, const char* path, int flags, mode_t mode);
/// syscall(SYS_futex, words...) that waits, of an instance that must not block its thread. Wakes for no reason, too, as
/// that call may.
long futex_in_turn(Instance& instance, const long* words);
/// waitid(), which the system also asks what the child has used. Call from: a flow of the instance.
int wait_for_one(Instance& instance, idtype_t kind, id_t id, siginfo_t* info, int options, rusage* usage);
/// write(), part by part, for the rest may need a reader that this thread carries.
ssize_t write_in_turn(const void* caller, int descriptor, const void* bytes, std::size_t count);
ssize_t writev_in_turn(const void* caller, int descriptor, const iovec* pieces, int count);

}  // namespace aplib::loader::libc
