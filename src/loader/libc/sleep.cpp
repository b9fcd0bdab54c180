// SPDX-License-Identifier: MIT
// Sleep and its kin let other tasks run. Waiting for descriptors (poll and select with any) stays libc's and keeps
// the processor: `threads = "per-cell"` is for programs that do that.
#include <poll.h>
#include <sched.h>
#include <sys/select.h>
#include <threads.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>

#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"

namespace aplib::loader::libc {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr long nanoseconds_per_second = 1'000'000'000;

/// More than any program waits, less than a clock can count.
constexpr seconds longest{3'000'000'000};

bool is_time(const timespec& time) noexcept {
  return time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < nanoseconds_per_second;
}

nanoseconds to_duration(const timespec& time) noexcept {
  return seconds(time.tv_sec) >= longest ? nanoseconds(longest) : seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

/// The switch may have come between, so the place of errno must not be known from before.
[[gnu::noinline]] int failed(int error) noexcept {
  errno = error;
  return -1;
}

void sleep_in(Instance& instance, nanoseconds duration) {
  if (duration.count() > 0) {
    instance.services().sleep(duration);
  } else {
    instance.services().yield();
  }
}

unsigned bound_sleep(unsigned time) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::sleep(time);
  sleep_in(*instance, seconds(time));
  return 0;
}

int bound_usleep(useconds_t time) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::usleep(time);
  sleep_in(*instance, microseconds(time));
  return 0;
}

int sleep_for(Instance& instance, const timespec& time, timespec* rest) {
  if (!is_time(time)) return EINVAL;
  sleep_in(instance, to_duration(time));
  if (rest != nullptr) *rest = timespec{};  // no signal interrupts it
  return 0;
}

int bound_nanosleep(const timespec* time, timespec* rest) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::nanosleep(time, rest);
  const int error = sleep_for(*instance, *time, rest);
  return error == 0 ? 0 : failed(error);
}

// Returns the error, as POSIX has it.
int bound_clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* rest) {
  Instance* instance = calling(__builtin_return_address(0));
  const bool of_wall_time =
      clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME || clock == CLOCK_TAI;
  if (instance == nullptr || !of_wall_time) return ::clock_nanosleep(clock, flags, time, rest);
  if ((flags & TIMER_ABSTIME) == 0) return sleep_for(*instance, *time, rest);
  if (!is_time(*time)) return EINVAL;
  while (true) {  // the clock may be set meanwhile
    timespec now{};
    if (clock_gettime(clock, &now) != 0) return EINVAL;
    const nanoseconds left = to_duration(*time) - to_duration(now);
    if (left.count() <= 0) return 0;
    instance->services().sleep(left);
  }
}

int bound_thrd_sleep(const timespec* time, timespec* rest) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::thrd_sleep(time, rest);
  constexpr int other_error = -2;
  return sleep_for(*instance, *time, rest) == 0 ? 0 : other_error;
}

/// libc declares these nothrow, so what stops the machine must not come out of them: the program is left by a jump.
void yield_in(Instance& instance) noexcept {
  bool stopped = false;
  try {
    instance.services().yield();
  } catch (...) {
    stopped = true;
  }
  if (stopped) instance.leave(0, false);
}

int bound_sched_yield() {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::sched_yield();
  yield_in(*instance);
  return 0;
}

void bound_thrd_yield() {
  if (Instance* instance = calling(__builtin_return_address(0))) {
    yield_in(*instance);
  } else {
    ::thrd_yield();
  }
}

// Without descriptors these are sleeps in other words. A wait without end stays libc's.

int bound_poll(pollfd* descriptors, nfds_t count, int timeout) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr || count != 0 || timeout < 0) return ::poll(descriptors, count, timeout);
  sleep_in(*instance, milliseconds(timeout));
  return 0;
}

int bound_ppoll(pollfd* descriptors, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr || count != 0 || timeout == nullptr) return ::ppoll(descriptors, count, timeout, mask);
  const int error = sleep_for(*instance, *timeout, nullptr);
  return error == 0 ? 0 : failed(error);
}

bool has_none(int count, const fd_set* read, const fd_set* write, const fd_set* except) noexcept {
  return count == 0 || (read == nullptr && write == nullptr && except == nullptr);
}

int bound_select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr || !has_none(count, read, write, except) || timeout == nullptr || timeout->tv_sec < 0 ||
      timeout->tv_usec < 0) {
    return ::select(count, read, write, except, timeout);
  }
  sleep_in(*instance, to_duration({timeout->tv_sec, 0}) + microseconds(timeout->tv_usec));
  *timeout = timeval{};  // as Linux does
  return 0;
}

int bound_pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
                  const sigset_t* mask) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr || !has_none(count, read, write, except) || timeout == nullptr) {
    return ::pselect(count, read, write, except, timeout, mask);
  }
  const int error = sleep_for(*instance, *timeout, nullptr);
  return error == 0 ? 0 : failed(error);
}

}  // namespace

std::span<const Binding> sleep_bindings() {
  static const Binding table[] = {
      Binding::of("sleep", bound_sleep),
      Binding::of("usleep", bound_usleep),
      Binding::of("nanosleep", bound_nanosleep),
      Binding::of("__nanosleep", bound_nanosleep),
      Binding::of("clock_nanosleep", bound_clock_nanosleep),
      Binding::of("thrd_sleep", bound_thrd_sleep),
      Binding::of("sched_yield", bound_sched_yield),
      Binding::of("__sched_yield", bound_sched_yield),
      Binding::of("pthread_yield", bound_sched_yield),
      Binding::of("thrd_yield", bound_thrd_yield),
      Binding::of("poll", bound_poll),
      Binding::of("__poll", bound_poll),
      Binding::of("ppoll", bound_ppoll),
      Binding::of("select", bound_select),
      Binding::of("__select", bound_select),
      Binding::of("pselect", bound_pselect),
  };
  return table;
}

}  // namespace aplib::loader::libc
