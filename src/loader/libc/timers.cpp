// SPDX-License-Identifier: MIT
// Alarm, setitimer, timer_create, mq_notify: each instance has timers of its own.
//
// One thread for the process knows all that are armed. When one is due, it leaves the signal with the instance, and
// stops the thread that carries the cell for a moment: the handler runs there if that thread runs the program's own
// code, else it tries again soon. A program that waits or sleeps in a bound function finds the signal itself. So a
// handler runs in the middle of the program as in a process, but not in a call of ours, and not in libraries.
//
// A function that is to be called (SIGEV_THREAD) is called on a thread of the program, as libc does: one that waits
// makes one for each call. They end with the program. The kernel would send mq_notify()'s signal to the process, so
// libc calls us instead, and we send it.
//
// Timers of computing time take samples: one is due whenever the thread that carries the cell has computed for its
// interval, and counts if it runs the program then.
#include <aio.h>
#include <mqueue.h>
#include <netdb.h>
#include <semaphore.h>
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
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/os/thread.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/signals.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using Time = WaitClock::time_point;

/// What a program has asked to be called.
struct Call {
  void (*function)(sigval) = nullptr;
  sigval value{};
  std::size_t stack_bytes = 0;  ///< 0: as ever.
};

struct Timer {
  int signal = 0;  ///< 0: none is sent.
  Call call;       ///< Instead of a signal.
  int calls = 0;   ///< That are due.
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
  std::array<Timer, 3> of_interval;       ///< ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF
  std::list<Timer> made;                  ///< By timer_create.
  std::list<Timer> queues;                ///< By mq_notify; never armed.
  sem_t calls{};                          ///< That are due.
  bool has_caller = false;                ///< A thread waits for them.
  std::atomic<bool> over{false};          ///< The program has ended.
  Time retry{};                           ///< Its thread is stopped again then, if the signal still waits.
  nanoseconds pause{0};                   ///< 0: none waits.
  nanoseconds computed{0};                ///< By its thread, when that was looked at last.
  std::atomic<std::uint64_t> outside{0};  ///< Signals from outside that the program handles: 1 << each; of_queues.

  template <class Each>
  void for_each(Each each) {
    for (Timer& timer : of_interval) each(timer);
    for (Timer& timer : made) each(timer);
    for (Timer& timer : queues) each(timer);
  }
};

namespace {

/// Beside the signals of TimerState::outside: one may come from mq_notify().
constexpr std::uint64_t of_queues = 1;

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
  /// With mutex held: the state that has this timer of mq_notify()'s; null: it is gone.
  TimerState* state_with(const Timer* timer) noexcept {
    for (TimerState* const state : states_) {
      if (std::ranges::any_of(state->queues, [=](const Timer& each) { return &each == timer; })) return state;
    }
    return nullptr;
  }
  /// With mutex held.
  [[nodiscard]] const std::vector<TimerState*>& states() const noexcept { return states_; }
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

void note_call(TimerState& state, Timer& timer) noexcept {
  ++timer.calls;
  ::sem_post(&state.calls);
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
      if (timer.call.function != nullptr) return note_call(state, timer);
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
    if (timer.call.function != nullptr) return note_call(state, timer);
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
  interrupt_threads(*state.instance);
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

TimerState& timers_of(Instance& instance) {
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
  TimerState& state = timers_of(instance);
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
  TimerState& state = timers_of(*instance);
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

/// One that is due; without function: none.
Call take_call(TimerState& state) noexcept {
  Call call;
  const std::lock_guard lock(clockwork().mutex);
  state.for_each([&call](Timer& timer) {
    if (call.function != nullptr || timer.calls == 0) return;
    --timer.calls;
    call = timer.call;
  });
  std::erase_if(state.queues, [](const Timer& timer) { return timer.code == 0 && timer.calls == 0; });
  return call;
}

void* run_call(void* argument) {
  const Call call = *std::unique_ptr<Call>(static_cast<Call*>(argument));
  hold_end(false);
  call.function(call.value);
  return nullptr;
}

/// The thread that waits for calls that are due, until the program ends.
void* run_calls(void* argument) {
  TimerState& state = *static_cast<TimerState*>(argument);
  hold_end(true);
  while (true) {
    if (::sem_wait(&state.calls) != 0) continue;
    const Call call = take_call(state);
    if (state.over.load()) return nullptr;
    if (call.function == nullptr) continue;  // its timer has been deleted
    auto* const copy = new (std::nothrow) Call(call);
    if (copy == nullptr || !make_pool_thread(run_call, copy, call.stack_bytes)) {
      state.instance->services().warn("a timer's function is not called: no thread can be had");
      delete copy;
    }
  }
}

/// What `event` asks for. False: it asks for a call, and no thread can be had; errno is set.
bool set_event(TimerState& state, Timer& timer, const sigevent& event) {
  timer.value = event.sigev_value;
  timer.signal = event.sigev_notify == SIGEV_NONE || event.sigev_notify == SIGEV_THREAD ? 0 : event.sigev_signo;
  if (event.sigev_notify != SIGEV_THREAD) return true;
  timer.call = {event.sigev_notify_function, event.sigev_value, 0};
  if (const pthread_attr_t* const attributes = event.sigev_notify_attributes)
    ::pthread_attr_getstacksize(attributes, &timer.call.stack_bytes);
  if (!state.has_caller && !make_pool_thread(run_calls, &state)) {
    failed(EAGAIN);
    return false;
  }
  state.has_caller = true;
  return true;
}

bool is_event(const sigevent& event) noexcept {
  if (event.sigev_notify == SIGEV_NONE) return true;
  if (event.sigev_notify == SIGEV_THREAD) return event.sigev_notify_function != nullptr;
  return event.sigev_signo >= 0 && event.sigev_signo < NSIG;
}

/// libc's thread calls this when a message has come.
void report_message(sigval value) {
  const std::lock_guard lock(clockwork().mutex);
  auto* const timer = static_cast<Timer*>(value.sival_ptr);
  TimerState* const state = clockwork().state_with(timer);
  if (state == nullptr) return;
  const int code = std::exchange(timer->code, 0);  // it is told once
  if (timer->call.function != nullptr) return note_call(*state, *timer);
  try {
    if (post_signal(*state->instance, timer->signal, code, timer->value)) {
      state->pause = first_retry;
      state->retry = WaitClock::now();
      clockwork().stir();
    }
  } catch (...) {  // a signal that nobody handles has ended the machine
  }
  std::erase_if(state->queues, [=](const Timer& each) { return &each == timer; });
}

int own_mq_notify(Instance& instance, mqd_t queue, const sigevent* event) {
  queue = redirected(instance, queue);
  if (event == nullptr || event->sigev_notify == SIGEV_NONE) return ::mq_notify(queue, event);
  if (!is_event(*event)) return failed(EINVAL);
  TimerState& state = timers_of(instance);
  Timer timer;
  timer.code = SI_MESGQ;
  if (!set_event(state, timer, *event)) return -1;
  if (timer.call.function == nullptr) state.outside.fetch_or(of_queues);
  sigevent ours{};
  ours.sigev_notify = SIGEV_THREAD;
  ours.sigev_notify_function = report_message;
  {
    const std::lock_guard lock(clockwork().mutex);
    ours.sigev_value.sival_ptr = &state.queues.emplace_back(timer);
  }
  const WithoutProgramContext without;  // libc may make its thread
  if (::mq_notify(queue, &ours) == 0) return 0;
  const int error = errno_now();
  const std::lock_guard lock(clockwork().mutex);
  std::erase_if(state.queues, [&](const Timer& each) { return &each == ours.sigev_value.sival_ptr; });
  return failed(error);
}

/// The signal would be sent to the process, and libc would call the function on a thread of its own.
bool tells_process(const sigevent& event) noexcept {
  return event.sigev_notify != SIGEV_NONE && (event.sigev_notify != SIGEV_SIGNAL || event.sigev_signo != 0);
}

int refuse_to_tell(Instance& instance) {
  instance.services().warn(
      "aio_read(), getaddrinfo_a() and their kin that send a signal or call a function are not available in a loaded "
      "program (they fail with ENOSYS): libc would send the signal to the process; use SIGEV_NONE and aio_suspend() or "
      "gai_suspend(), or run the program as processes (--processes)");
  return failed(ENOSYS);
}

/// Libc's threads read the descriptor from the program's block, where it is the kernel's number until aio_return().
template <class Call>
int begin_operation(const void* caller, aiocb* operation, Call&& call) {
  Instance* const instance = calling(caller);
  if (instance == nullptr) return call();
  if (tells_process(operation->aio_sigevent)) return refuse_to_tell(*instance);
  const int descriptor = std::exchange(operation->aio_fildes, redirected(*instance, operation->aio_fildes));
  const int result = call();
  if (result != 0) operation->aio_fildes = descriptor;  // no aio_return() follows
  return result;
}

int bound_aio_read(aiocb* operation) {
  return begin_operation(__builtin_return_address(0), operation, [&] { return ::aio_read(operation); });
}
int bound_aio_write(aiocb* operation) {
  return begin_operation(__builtin_return_address(0), operation, [&] { return ::aio_write(operation); });
}
int bound_aio_fsync(int how, aiocb* operation) {
  return begin_operation(__builtin_return_address(0), operation, [&] { return ::aio_fsync(how, operation); });
}
int own_lio_listio(Instance& instance, int mode, aiocb* const* operations, int count, sigevent* event) {
  std::vector<aiocb*> all(operations, operations + std::max(count, 0));
  std::erase_if(all, [](const aiocb* each) { return each == nullptr || each->aio_lio_opcode == LIO_NOP; });
  if ((mode == LIO_NOWAIT && event != nullptr && tells_process(*event)) ||
      std::ranges::any_of(all, [](const aiocb* each) { return tells_process(each->aio_sigevent); }))
    return refuse_to_tell(instance);
  std::vector<int> descriptors;
  for (aiocb* const each : all)
    descriptors.push_back(std::exchange(each->aio_fildes, redirected(instance, each->aio_fildes)));
  const int result = ::lio_listio(mode, operations, count, event);
  if (result == 0) return 0;
  const int error = errno_now();
  for (std::size_t i = 0; i < all.size(); ++i) {  // some may have begun
    if (::aio_error(all[i]) != EINPROGRESS) all[i]->aio_fildes = descriptors[i];
  }
  return failed(error);
}
int own_aio_cancel(Instance& instance, int descriptor, aiocb* operation) {
  const int kernel = redirected(instance, descriptor);
  // Libc compares the two even where there is nothing to cancel any more.
  if (operation == nullptr || operation->aio_fildes != descriptor) return ::aio_cancel(kernel, operation);
  operation->aio_fildes = kernel;
  const int result = ::aio_cancel(kernel, operation);
  operation->aio_fildes = descriptor;
  return result;
}
ssize_t own_aio_return(Instance& instance, aiocb* operation) {
  operation->aio_fildes = number_of(instance, operation->aio_fildes);
  return ::aio_return(operation);
}

int own_getaddrinfo_a(Instance& instance, int mode, gaicb** list, int count, sigevent* event) {
  if (mode != GAI_NOWAIT || event == nullptr || !tells_process(*event))
    return ::getaddrinfo_a(mode, list, count, event);
  refuse_to_tell(instance);
  return EAI_SYSTEM;
}

int own_timer_create(Instance& instance, clockid_t clock, sigevent* event, timer_t* place) {
  timespec now{};
  if (::clock_gettime(clock, &now) != 0) return failed(EINVAL);
  Timer timer;
  timer.clock = clock;
  timer.of_computing = clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID;
  timer.code = SI_TIMER;
  timer.signal = SIGALRM;
  TimerState& state = timers_of(instance);
  if (event != nullptr) {
    if (!is_event(*event)) return failed(EINVAL);
    if (!set_event(state, timer, *event)) return -1;
  }
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
  TimerState& state = timers_of(instance);
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
  TimerState& state = timers_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  const Timer* const timer = find(state, id);
  if (timer == nullptr) return failed(EINVAL);
  *value = {to_timespec(timer->interval), to_timespec(left_of(*timer))};
  return 0;
}

int own_timer_getoverrun(Instance& instance, timer_t id) {
  TimerState& state = timers_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  const Timer* const timer = find(state, id);
  return timer != nullptr ? timer->overrun : failed(EINVAL);
}

int own_timer_delete(Instance& instance, timer_t id) {
  TimerState& state = timers_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  const auto before = state.made.size();
  state.made.remove_if([id](const Timer& timer) { return &timer == id; });
  return state.made.size() != before ? 0 : failed(EINVAL);
}

}  // namespace

TimerState::TimerState() {
  ::sem_init(&calls, 0, 0);
  clockwork().add(*this);
}
TimerState::~TimerState() { clockwork().remove(*this); }

bool has_timers(Instance& instance) noexcept {
  const TimerState* const state = std::atomic_ref(instance.libc().timers.part).load(std::memory_order_acquire);
  return state != nullptr;
}

std::optional<WaitClock::time_point> next_timer(Instance& instance) noexcept {
  TimerState* const state = std::atomic_ref(instance.libc().timers.part).load(std::memory_order_acquire);
  if (state == nullptr) return std::nullopt;
  const std::lock_guard lock(clockwork().mutex);
  if (state->instance == nullptr) return std::nullopt;
  std::optional<Time> next;
  state->for_each([&](const Timer& timer) {
    const bool sends = timer.is_armed() && !timer.of_computing && timer.call.function == nullptr;
    if (sends && (!next || *timer.due < *next)) next = timer.due;
  });
  return next;
}

void stop_timers(Instance& instance) noexcept {
  TimerState* const state = std::atomic_ref(instance.libc().timers.part).load(std::memory_order_acquire);
  if (state == nullptr) return;
  const std::lock_guard lock(clockwork().mutex);
  state->queues.clear();
  state->pause = nanoseconds(0);
  state->for_each([](Timer& timer) {
    timer.due.reset();
    timer.calls = 0;
  });
  state->over.store(true);
  ::sem_post(&state->calls);
}

bool remind_of_signals(Instance& instance) {
  TimerState& state = timers_of(instance);
  const std::lock_guard lock(clockwork().mutex);
  state.pause = first_retry;
  state.retry = WaitClock::now();
  return clockwork().stir();
}

constexpr std::array from_outside{SIGUSR1, SIGUSR2, SIGTERM};
void note_outside_signal(Instance& instance, int signal, bool handles) {
  if (std::ranges::find(from_outside, signal) == from_outside.end() || (!handles && !has_timers(instance))) return;
  std::atomic<std::uint64_t>& outside = timers_of(instance).outside;
  const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(signal);
  handles ? outside.fetch_or(bit) : outside.fetch_and(~bit);
}

void note_awaited_signals(Instance& instance, const sigset_t& set) {
  for (const int signal : from_outside)
    if (sigismember(&set, signal) == 1) note_outside_signal(instance, signal, true);
}

bool takes_outside_signals(Instance& instance) noexcept {
  const TimerState* const state = std::atomic_ref(instance.libc().timers.part).load(std::memory_order_acquire);
  return state != nullptr && state->outside != 0;
}

bool pass_to_programs(int signal, std::size_t count, pid_t sender) {
  const Instance* const maker = sender > 0 ? maker_of(sender) : nullptr;
  if (maker != nullptr) count = 1;
  const std::lock_guard lock(clockwork().mutex);
  std::vector<TimerState*> takers;
  std::size_t ending = 0;  // they had handlers, and do not miss the signal
  for (TimerState* const state : clockwork().states()) {
    const bool handles = (state->outside >> static_cast<unsigned>(signal) & 1) != 0;
    if (!handles || state->instance == nullptr || (maker != nullptr && state->instance != maker)) continue;
    if (state->over) {
      ++ending;
    } else {
      takers.push_back(state);
    }
  }
  if (takers.size() + ending < std::max<std::size_t>(count, 1)) return false;
  if (!takers.empty() && !clockwork().stir()) return false;
  for (TimerState* const state : takers) {
    if (!post_signal(*state->instance, signal, SI_USER, {}, maker != nullptr ? sender : ::getppid(), false)) continue;
    state->pause = first_retry;
    state->retry = WaitClock::now();
  }
  return true;
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
      bound<::mq_notify, own_mq_notify>("mq_notify"),
      Binding::of("aio_read", bound_aio_read),
      Binding::of("aio_read64", bound_aio_read),
      Binding::of("aio_write", bound_aio_write),
      Binding::of("aio_write64", bound_aio_write),
      Binding::of("aio_fsync", bound_aio_fsync),
      Binding::of("aio_fsync64", bound_aio_fsync),
      bound<::lio_listio, own_lio_listio>("lio_listio"),
      bound<::lio_listio, own_lio_listio>("lio_listio64"),
      bound<::aio_cancel, own_aio_cancel>("aio_cancel"),
      bound<::aio_cancel, own_aio_cancel>("aio_cancel64"),
      bound<::aio_return, own_aio_return>("aio_return"),
      bound<::aio_return, own_aio_return>("aio_return64"),
      bound<::getaddrinfo_a, own_getaddrinfo_a>("getaddrinfo_a"),
  };
  return table;
}

}  // namespace aplib::loader::libc
