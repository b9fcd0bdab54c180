// SPDX-License-Identifier: MIT
// Threads of the runtime's own: they block all signals, so that handlers run on threads that carry cells, or on the
// main one.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace aplib::os {

/// Blocks all signals of the calling thread while it lives. A thread that starts meanwhile inherits that.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
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

/// Starts a thread that blocks all signals. `name` is what debuggers and top show: at most 15 characters. Throws
/// std::system_error as std::thread does; the caller's own mask is back in any case.
template <class Function>
[[nodiscard]] std::thread quiet_thread(const char* name, Function&& function) {
  const SignalsBlocked blocked;
  std::thread thread(std::forward<Function>(function));
  ::pthread_setname_np(thread.native_handle(), name);  // fails for a longer name only, which changes nothing else
  return thread;
}

}  // namespace aplib::os
