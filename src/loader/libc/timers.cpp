// SPDX-License-Identifier: MIT
// Alarm, setitimer, timer_create: each instance has timers of its own.
//
// One thread for the process knows all that are armed. When one is due, it leaves the signal with the instance, and
// stops the thread that carries the cell for a moment: the handler runs there if that thread runs the program's own
// code, else it tries again soon. A program that waits or sleeps in a bound function finds the signal itself. So a
// handler runs in the middle of the program as in a process, but not in a call of ours, and not in libraries.
//
// Timers of computing time take samples: one is due whenever the thread that carries the cell has computed for its
// interval, and counts if it runs the program then.
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/os/thread.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/signals.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using Time = WaitClock::time_point;

struct Timer {
  int signal = 0;  ///< 0: none is sent.
  int code = SI_KERNEL;
  sigval value{};
  bool of_computing = false;
  clockid_t clock = CLOCK_REALTIME;
  std::optional<Time> due;  ///< Of one of computing time: the next sample.
  nanoseconds left{0};      ///< Of computing time.
  nanoseconds interval{0};
  int overrun = 0;

  [[nodiscard]] bool is_armed() const noexcept { return due.has_value(); }
};

}  // namespace

struct TimerState {
  TimerState();
  ~TimerState();

  Instance* instance = nullptr;
  std::array<Timer, 3> of_interval;  ///< ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF
  std::list<Timer> made;             ///< By timer_create.
  Time retry{};                      ///< Its thread is stopped again then, if the signal still waits.
  nanoseconds pause{0};              ///< 0: none waits.
  nanoseconds computed{0};           ///< By its thread, when that was looked at last.

  template <class Each>
  void for_each(Each each) {
    for (Timer& timer : of_interval) each(timer);
    for (Timer& timer : made) each(timer);
  }
};

namespace {

constexpr nanoseconds sample = milliseconds(1);
constexpr nanoseconds first_retry = microseconds(200);
constexpr nanoseconds last_retry = milliseconds(20);

/// The timers of all instances.
class Clockwork {
 public:
  std::mutex mutex;

  void add(TimerState& state) {
    const std::lock_guard lock(mutex);
    states_.push_back(&state);
  }
  void remove(TimerState& state) noexcept {
    const std::lock_guard lock(mutex);
    std::erase(states_, &state);
  }
  /// With mutex held: a timer has changed. False: no thread can be had.
  bool stir() noexcept {
    if (!runs_) {
      try {
        const WithoutProgramContext without;
        os::quiet_thread("aplib-timers", [this] { run(); }).detach();
        runs_ = true;
      } catch (const std::exception&) {
        return false;
      }
    }
    changed_.notify_one();
    return true;
  }
  /// With mutex held: leaves the signals of those that are due.
  void expire(TimerState& state, Time now);

 private:
  [[noreturn]] void run();
  static std::optional<Time> next_of(TimerState& state) noexcept;

  std::condition_variable changed_;
  std::vector<TimerState*> states_;
  bool runs_ = false;
};

Clockwork& clockwork() {
  static auto* const all = new Clockwork;  // never destroyed: its thread may run to the end
  return *all;
}

/// What the thread has computed.
nanoseconds computed_by(pid_t thread) noexcept {
  constexpr clockid_t scheduled_thread = 6;  // Linux: a thread's clock of computing time
  timespec now{};
  const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3U) | scheduled_thread);
  if (thread == 0 || ::clock_gettime(clock, &now) != 0) return nanoseconds(0);
  return seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

void Clockwork::expire(TimerState& state, Time now) {
  const pid_t thread = state.instance->services().thread();
  const nanoseconds computed = computed_by(thread);
  const nanoseconds more = std::max(computed - state.computed, nanoseconds(0));
  state.computed = computed;
  bool stops = false;
  state.for_each([&](Timer& timer) {
    if (!timer.is_armed()) return;
    if (timer.of_computing) {
      timer.left -= more;
      timer.due = now + sample;
      if (timer.left.count() > 0) return;
      timer.left = std::max(timer.left + timer.interval, timer.interval / 2);
      if (timer.interval.count() == 0) timer.due.reset();
      note_sample(*state.instance, timer.signal, timer.code, timer.value);
      stops = true;
      return;
    }
    if (*timer.due > now) return;
    timer.overrun = 0;
    if (timer.interval.count() == 0) {
      timer.due.reset();
    } else {
      const auto missed = (now - *timer.due) / timer.interval;
      timer.overrun = static_cast<int>(missed);
      *timer.due += timer.interval * (missed + 1);
    }
    if (timer.signal == 0) return;
    if (!post_signal(*state.instance, timer.signal, timer.code, timer.value)) return;
    state.pause = first_retry;
    stops = true;
  });
  if (!stops && state.pause.count() != 0 && state.retry <= now) {
    stops = has_pending_signals(*state.instance);
    state.pause = stops ? std::min(2 * state.pause, last_retry) : nanoseconds(0);
  }
  if (!stops) return;
  state.retry = now + state.pause;
  if (thread != 0) ::tgkill(::getpid(), thread, interrupt_signal);
}

std::optional<Time> Clockwork::next_of(TimerState& state) noexcept {
  std::optional<Time> next;
  const auto add = [&next](Time time) {
    if (!next || time < *next) next = time;
  };
  state.for_each([&](const Timer& timer) {
    if (timer.is_armed()) add(*timer.due);
  });
  if (state.pause.count() != 0) add(state.retry);
  return next;
}

void Clockwork::run() {
  std::unique_lock lock(mutex);
  while (true) {
    std::optional<Time> next;
    const Time now = WaitClock::now();
    for (TimerState* const state : states_) {
      if (state->instance == nullptr) continue;  // it is being made
      try {
        expire(*state, now);
      } catch (...) {  // a signal that nobody handles has ended the machine
      }
      if (const auto of_state = next_of(*state); of_state && (!next || *of_state < *next)) next = of_state;
    }
    if (next) {
      changed_.wait_until(lock, *next);
    } else {
      changed_.wait(lock);
    }
  }
}

TimerState& state_of(Instance& instance) {
  TimerState& state = shared_part(instance.libc().timers);
  const std::lock_guard lock(clockwork().mutex);
  state.instance = &instance;
  return state;
}

// ---------------------------------------------------------------- reading and setting

nanoseconds left_of(const Timer& timer) noexcept {
  if (!timer.is_armed()) return nanoseconds(0);
  const nanoseconds left = timer.of_computing ? timer.left : nanoseconds(*timer.due - WaitClock::now());
  return std::max(left, nanoseconds(1000));  // it has not come yet
}

/// `first`: 0: disarms.
void arm(TimerState& state, Timer& timer, nanoseconds first, nanoseconds interval) noexcept {
  timer.interval = interval;
  timer.overrun = 0;
  timer.due.reset();
  if (first.count() == 0) return;
  const Time now = WaitClock::now();
  timer.left = first;
  timer.due = timer.of_computing ? now + std::min(first, sample) : now + first;
  if (timer.of_computing) state.computed = computed_by(state.instance->services().thread());
}

int set(TimerState& state, Timer& timer, nanoseconds first, nanoseconds interval) {
  arm(state, timer, first, interval);
  return first.count() == 0 || clockwork().stir() ? 0 : failed(EAGAIN);
}

timeval to_timeval(nanoseconds time) noexcept {
  const auto micro = std::chrono::duration_cast<microseconds>(time);
  return {micro.count() / 1'000'000, micro.count() % 1'000'000};
}
timespec to_timespec(nanoseconds time) noexcept { return {time.count() / 1'000'000'000, time.count() % 1'000'000'000}; }
nanoseconds to_duration(const timeval& time) noexcept { return seconds(time.tv_sec) + microseconds(time.tv_usec); }

using libc::is_time;
using libc::to_duration;

bool is_time(const timeval& time) noexcept { return time.tv_sec >= 0 && time.tv_usec >= 0 && time.tv_usec < 1'000'000; }

constexpr std::array<int, 3> signals_of_intervals{SIGALRM, SIGVTALRM, SIGPROF};

Timer& interval_timer(TimerState& state, int which) noexcept {
  Timer& timer = state.of_interval[static_cast<std::size_t>(which)];
  timer.signal = signals_of_intervals[static_cast<std::size_t>(which)];
  timer.of_computing = which != ITIMER_REAL;
  return timer;
}

int own_setitimer(Instance& instance, int which, const itimerval* value, itimerval* old) {
  if (which < ITIMER_REAL || which > ITIMER_PROF) return failed(EINVAL);
  if (value != nullptr && (!is_time(value->it_value) || !is_time(value->it_interval))) return failed(EINVAL);
  TimerState& state = state_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  Timer& timer = interval_timer(state, which);
  if (old != nullptr) *old = {to_timeval(timer.interval), to_timeval(left_of(timer))};
  const itimerval none{};
  const itimerval& wanted = value != nullptr ? *value : none;
  return set(state, timer, to_duration(wanted.it_value), to_duration(wanted.it_interval));
}

int bound_setitimer(int which, const itimerval* value, itimerval* old) {
  Instance* const instance = calling(__builtin_return_address(0));
  return instance != nullptr ? own_setitimer(*instance, which, value, old) : ::setitimer(which, value, old);
}

int bound_getitimer(int which, itimerval* value) {
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::getitimer(which, value);
  if (which < ITIMER_REAL || which > ITIMER_PROF) return failed(EINVAL);
  TimerState& state = state_of(*instance);
  const std::lock_guard lock(clockwork().mutex);
  const Timer& timer = interval_timer(state, which);
  *value = {to_timeval(timer.interval), to_timeval(left_of(timer))};
  return 0;
}

unsigned own_alarm(Instance& instance, unsigned time) {
  itimerval old{};
  const itimerval value{{0, 0}, {static_cast<time_t>(time), 0}};
  own_setitimer(instance, ITIMER_REAL, &value, &old);
  constexpr long half = 500'000;
  const bool some = old.it_value.tv_sec != 0 || old.it_value.tv_usec != 0;
  const auto left = static_cast<unsigned>(old.it_value.tv_sec) + (old.it_value.tv_usec >= half ? 1U : 0U);
  return some ? std::max(left, 1U) : 0;
}

useconds_t own_ualarm(Instance& instance, useconds_t time, useconds_t interval) {
  itimerval old{};
  const itimerval value{to_timeval(microseconds(interval)), to_timeval(microseconds(time))};
  own_setitimer(instance, ITIMER_REAL, &value, &old);
  return static_cast<useconds_t>(old.it_value.tv_sec * 1'000'000 + old.it_value.tv_usec);
}

// ---------------------------------------------------------------- timers that are made

int own_timer_create(Instance& instance, clockid_t clock, sigevent* event, timer_t* place) {
  timespec now{};
  if (::clock_gettime(clock, &now) != 0) return failed(EINVAL);
  Timer timer;
  timer.clock = clock;
  timer.of_computing = clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID;
  timer.code = SI_TIMER;
  timer.signal = SIGALRM;
  if (event != nullptr) {
    if (event->sigev_notify == SIGEV_THREAD) {
      instance.services().warn(
          "timer_create() with SIGEV_THREAD is not available in a loaded program (it fails with ENOSYS); use a signal, "
          "or a thread that sleeps");
      return failed(ENOSYS);
    }
    timer.signal = event->sigev_notify == SIGEV_NONE ? 0 : event->sigev_signo;
    timer.value = event->sigev_value;
    if (timer.signal < 0 || timer.signal >= NSIG) return failed(EINVAL);
  }
  TimerState& state = state_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  Timer& made = state.made.emplace_back(timer);
  if (event == nullptr) made.value.sival_ptr = &made;
  *place = &made;
  return 0;
}

/// Null: none of the instance's.
Timer* find(TimerState& state, timer_t id) noexcept {
  const auto found = std::ranges::find_if(state.made, [id](const Timer& timer) { return &timer == id; });
  return found != state.made.end() ? &*found : nullptr;
}

int own_timer_settime(Instance& instance, timer_t id, int flags, const itimerspec* value, itimerspec* old) {
  TimerState& state = state_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  Timer* const timer = find(state, id);
  if (timer == nullptr || value == nullptr || !is_time(value->it_value) || !is_time(value->it_interval))
    return failed(EINVAL);
  if (old != nullptr) *old = {to_timespec(timer->interval), to_timespec(left_of(*timer))};
  nanoseconds first = to_duration(value->it_value);
  if (first.count() != 0 && (flags & TIMER_ABSTIME) != 0) {
    timespec now{};
    ::clock_gettime(timer->clock, &now);
    first = std::max(first - to_duration(now), nanoseconds(1));
  }
  return set(state, *timer, first, to_duration(value->it_interval));
}

int own_timer_gettime(Instance& instance, timer_t id, itimerspec* value) {
  TimerState& state = state_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  const Timer* const timer = find(state, id);
  if (timer == nullptr) return failed(EINVAL);
  *value = {to_timespec(timer->interval), to_timespec(left_of(*timer))};
  return 0;
}

int own_timer_getoverrun(Instance& instance, timer_t id) {
  TimerState& state = state_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  const Timer* const timer = find(state, id);
  return timer != nullptr ? timer->overrun : failed(EINVAL);
}

int own_timer_delete(Instance& instance, timer_t id) {
  TimerState& state = state_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  const auto before = state.made.size();
  state.made.remove_if([id](const Timer& timer) { return &timer == id; });
  return state.made.size() != before ? 0 : failed(EINVAL);
}

}  // namespace

TimerState::TimerState() { clockwork().add(*this); }
TimerState::~TimerState() { clockwork().remove(*this); }

std::optional<WaitClock::time_point> next_timer(Instance& instance) noexcept {
  TimerState* const state = std::atomic_ref(instance.libc().timers.part).load(std::memory_order_acquire);
  if (state == nullptr) return std::nullopt;
  const std::lock_guard lock(clockwork().mutex);
  if (state->instance == nullptr) return std::nullopt;
  std::optional<Time> next;
  state->for_each([&](const Timer& timer) {
    if (timer.is_armed() && !timer.of_computing && (!next || *timer.due < *next)) next = timer.due;
  });
  return next;
}

void expire_timers(Instance& instance) {
  TimerState* const state = std::atomic_ref(instance.libc().timers.part).load(std::memory_order_acquire);
  if (state == nullptr) return;
  const std::lock_guard lock(clockwork().mutex);
  if (state->instance != nullptr) clockwork().expire(*state, WaitClock::now());
}

std::span<const Binding> timers_bindings() {
  static const Binding table[] = {
      bound<::alarm, own_alarm>("alarm"),
      bound<::ualarm, own_ualarm>("ualarm"),
      Binding::of("setitimer", bound_setitimer),
      Binding::of("getitimer", bound_getitimer),
      bound<::timer_create, own_timer_create>("timer_create"),
      bound<::timer_settime, own_timer_settime>("timer_settime"),
      bound<::timer_gettime, own_timer_gettime>("timer_gettime"),
      bound<::timer_getoverrun, own_timer_getoverrun>("timer_getoverrun"),
      bound<::timer_delete, own_timer_delete>("timer_delete"),
  };
  return table;
}

}  // namespace aplib::loader::libc
