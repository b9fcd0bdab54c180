// SPDX-License-Identifier: MIT
// What the operating system gives for waiting: futex and sched_yield. Linux only.
//
// Threads of the runtime's own: they block all signals but faults, so that handlers run on threads that carry cells, or
// on the main one.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"

namespace aplib::os {

/// Sleeps while `word` holds `expected`, until futex_wake, a signal, or the timeout. Spurious returns happen.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::optional<std::chrono::nanoseconds> timeout) noexcept;

/// Wakes all sleepers on `word`. Async-signal-safe.
void futex_wake(std::atomic<std::uint32_t>& word) noexcept;

/// Sleepers that each wait for a word of their own, and can be woken together by one system call.
class FutexGroup {
 public:
  /// From Linux 5.16 on, where no sandbox refuses it.
  [[nodiscard]] static bool can_wake_together() noexcept;
  /// As futex_wait(); wake_all() ends it, too.
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
            std::optional<std::chrono::nanoseconds> timeout) noexcept;
  /// Wakes all of the group; those whose words have not changed sleep again. REQUIRES: can_wake_together().
  void wake_all() noexcept;

 private:
  std::atomic<std::uint32_t> wakes_{0};
};

/// Lets other threads run that want this thread's core, if there are some.
void offer_core() noexcept;

/// While it lives, pthread_cancel() of the calling thread waits: for calls that are no cancellation points in POSIX,
/// and for the runtime's own work, which must not end in the middle.
class CancellationDisabled {
 public:
  CancellationDisabled() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationDisabled() { ::pthread_setcancelstate(before_, nullptr); }
  CancellationDisabled(const CancellationDisabled&) = delete;
  CancellationDisabled& operator=(const CancellationDisabled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

/// Of the calling thread: the first of what longjmp(), pthread_exit() and cancellation are to call. libc's functions
/// that hold a lock, or run one of the caller's (pthread_once), note it on their stacks meanwhile. Where libc keeps it
/// elsewhere, a word that nobody reads.
[[nodiscard]] void** cleanup_list() noexcept;

// ---------------------------------------------------------------- threads of the runtime's own

/// Blocks all signals of the calling thread while it lives, except for faults, which the thread causes itself. A thread
/// that starts meanwhile inherits that.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  /// The mask that comes back; a forked child that does not return here sets it itself.
  [[nodiscard]] const sigset_t& before() const noexcept { return before_; }

 private:
  sigset_t before_;
};

/// What /proc tells of a process, or of a thread ("self/task/7").
struct ProcessState {
  char state = 0;  ///< 'S': it sleeps; 'T': a signal has stopped it. 0: it is gone.
  pid_t parent = 0;
};
[[nodiscard]] ProcessState state_of(const std::string& process);

/// A signal to the process does not end it: it has a handler, ignores it, or blocks it in all threads, as for sigwait()
/// or a signalfd.
[[nodiscard]] bool expects_signal(pid_t process, int signal);

/// What helps where no thread can be had: behind the system's reason.
inline constexpr const char* thread_remedy =
    "; raise the limit on processes (ulimit -u) or on address space (ulimit -v), or that of the control group";

/// What the system says of an error of fork() or what is like it, and what helps.
[[nodiscard]] inline std::string process_text(int error) {
  return error == EAGAIN || error == ENOMEM ? std::string(std::strerror(error)) + thread_remedy : text_of(error);
}

/// Starts a thread that blocks all signals but faults. `name` is what debuggers and top show: at most 15 characters.
/// Throws Error(exhausted) where no thread can be had; the caller's own mask is back in any case.
template <class Function>
[[nodiscard]] std::thread quiet_thread(const char* name, Function&& function) {
  const SignalsBlocked blocked;
  try {
    std::thread thread(std::forward<Function>(function));
    ::pthread_setname_np(thread.native_handle(), name);  // fails for a longer name only, which changes nothing else
    return thread;
  } catch (const std::system_error& error) {
    throw Error(Errc::exhausted,
                "cannot start the thread " + std::string(name) + ": " + error.code().message() + thread_remedy);
  }
}

}  // namespace aplib::os
