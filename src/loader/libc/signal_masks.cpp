// SPDX-License-Identifier: MIT
// Blocked and awaited signals. A mask per flow of an instance, for the signals that the program sends to itself; the kernel's masks, which belong to threads that carry many cells, stay as they are.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>

#include "loader/instance.hpp"
#include "loader/libc/signals.hpp"
#include "loader/libc/tables.hpp"

namespace aplib::loader::libc {
namespace {

using Clock = std::chrono::steady_clock;

/// The switch may have come between, so the place of errno must not be known from before.
[[gnu::noinline]] int failed(int error) noexcept {
  errno = error;
  return -1;
}

/// Lets others run until `arrived()`, which only they can bring about. False: `deadline` is over.
template <class Arrived>
bool wait_until(Instance& instance, const char* function, std::optional<Clock::time_point> deadline, Arrived arrived) {
  if (arrived()) return true;
  if (!deadline) {
    instance.host().warn(
        fmt::format("{}() waits for a signal that only another task or thread of the program can send (raise, or kill "
                    "of its own process): signals from outside go to the machine",
                    function));
  }
  // There is nothing that could wake it: raise() of another flow leaves only a mark.
  constexpr auto first_look = std::chrono::microseconds(50);
  constexpr auto last_look = std::chrono::milliseconds(5);
  std::chrono::nanoseconds pause = first_look;
  while (!arrived()) {
    if (deadline && Clock::now() >= *deadline) return false;
    instance.host().sleep(pause);
    pause = std::min<std::chrono::nanoseconds>(pause * 2, last_look);
  }
  return true;
}

int wait_for_one_of(Instance& instance, const char* function, const sigset_t& set,
                    std::optional<Clock::time_point> deadline) {
  int found = 0;
  wait_until(instance, function, deadline, [&] { return (found = take_pending_signal(instance, set)) != 0; });
  return found;
}

int wait_for_handler(Instance& instance, const char* function) {
  const unsigned long before = delivered_signals(instance);
  wait_until(instance, function, std::nullopt, [&] { return delivered_signals(instance) != before; });
  return failed(EINTR);
}

int bound_pthread_sigmask(int how, const sigset_t* set, sigset_t* old) {
  Instance* instance = calling(__builtin_return_address(0));
  return instance != nullptr ? change_signal_mask(*instance, how, set, old) : ::pthread_sigmask(how, set, old);
}

int bound_sigprocmask(int how, const sigset_t* set, sigset_t* old) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::sigprocmask(how, set, old);
  const int error = change_signal_mask(*instance, how, set, old);
  return error == 0 ? 0 : failed(error);
}

int bound_sigpending(sigset_t* set) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::sigpending(set);
  *set = pending_signals(*instance);
  return 0;
}

int bound_pause() {
  Instance* instance = calling(__builtin_return_address(0));
  return instance != nullptr ? wait_for_handler(*instance, "pause") : ::pause();
}

int bound_sigsuspend(const sigset_t* mask) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::sigsuspend(mask);
  sigset_t own;
  const unsigned long before = delivered_signals(*instance);
  change_signal_mask(*instance, SIG_SETMASK, mask, &own);  // may deliver what has waited
  wait_until(*instance, "sigsuspend", std::nullopt, [&] { return delivered_signals(*instance) != before; });
  change_signal_mask(*instance, SIG_SETMASK, &own, nullptr);
  return failed(EINTR);
}

int bound_sigwait(const sigset_t* set, int* signal) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::sigwait(set, signal);
  *signal = wait_for_one_of(*instance, "sigwait", *set, std::nullopt);
  return 0;
}

int give_info(int signal, siginfo_t* info) noexcept {
  if (info != nullptr) {
    *info = siginfo_t{};
    info->si_signo = signal;
    info->si_code = SI_USER;
  }
  return signal;
}

int bound_sigwaitinfo(const sigset_t* set, siginfo_t* info) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::sigwaitinfo(set, info);
  return give_info(wait_for_one_of(*instance, "sigwaitinfo", *set, std::nullopt), info);
}

int bound_sigtimedwait(const sigset_t* set, siginfo_t* info, const timespec* timeout) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::sigtimedwait(set, info, timeout);
  std::optional<Clock::time_point> deadline;
  if (timeout != nullptr) {
    deadline = Clock::now() + std::chrono::seconds(timeout->tv_sec) + std::chrono::nanoseconds(timeout->tv_nsec);
  }
  const int signal = wait_for_one_of(*instance, "sigtimedwait", *set, deadline);
  return signal != 0 ? give_info(signal, info) : failed(EAGAIN);
}

// X/Open's older words for the same.

using Handler = void (*)(int);

int change_one(Instance* instance, int how, int signal) {
  sigset_t one;
  sigemptyset(&one);
  if (instance == nullptr || sigaddset(&one, signal) != 0) return failed(EINVAL);
  const int error = change_signal_mask(*instance, how, &one, nullptr);
  return error == 0 ? 0 : failed(error);
}

int bound_sighold(int signal) { return change_one(calling(__builtin_return_address(0)), SIG_BLOCK, signal); }
int bound_sigrelse(int signal) { return change_one(calling(__builtin_return_address(0)), SIG_UNBLOCK, signal); }

int bound_sigignore(int signal) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return failed(EINVAL);
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  return change_action(*instance, signal, &action, nullptr);
}

Handler bound_sigset(int signal, Handler handler) {
  Instance* instance = calling(__builtin_return_address(0));
  struct sigaction old {};
  sigset_t one;
  sigset_t before;
  sigemptyset(&one);
  sigemptyset(&before);
  if (instance == nullptr || sigaddset(&one, signal) != 0) {
    failed(EINVAL);
    return SIG_ERR;
  }
  if (handler == SIG_HOLD) {
    if (change_action(*instance, signal, nullptr, &old) != 0) return SIG_ERR;
    change_signal_mask(*instance, SIG_BLOCK, &one, &before);
  } else {
    struct sigaction action {};
    action.sa_handler = handler;
    if (change_action(*instance, signal, &action, &old) != 0) return SIG_ERR;
    change_signal_mask(*instance, SIG_UNBLOCK, &one, &before);
  }
  return sigismember(&before, signal) == 1 ? SIG_HOLD : old.sa_handler;
}

}  // namespace

std::span<const Binding> signal_masks_bindings() {
  static const Binding table[] = {
      Binding::of("pthread_sigmask", bound_pthread_sigmask),
      Binding::of("sigprocmask", bound_sigprocmask),
      Binding::of("sigpending", bound_sigpending),
      Binding::of("pause", bound_pause),
      Binding::of("sigsuspend", bound_sigsuspend),
      Binding::of("sigwait", bound_sigwait),
      Binding::of("sigwaitinfo", bound_sigwaitinfo),
      Binding::of("sigtimedwait", bound_sigtimedwait),
      Binding::of("sighold", bound_sighold),
      Binding::of("sigrelse", bound_sigrelse),
      Binding::of("sigignore", bound_sigignore),
      Binding::of("sigset", bound_sigset),
  };
  return table;
}

}  // namespace aplib::loader::libc
