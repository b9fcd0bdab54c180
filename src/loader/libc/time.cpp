// SPDX-License-Identifier: MIT
// Tzset and the variables behind localtime.
//
// libc has one time zone per process and no re-entrant way to another. So each call here makes the zone of the
// instance's TZ the process's while the call lasts. Where the two are equal, the usual case, that costs a comparison;
// otherwise libc reads the zone's file once or twice. The process has one lock for this, as libc has itself.
//
// Sleep and its relatives let other tasks run; waits for descriptors are in blocking.cpp.
//
// CPU time is the program's own, which the switch measures for those that ask (context.hpp).
//
// The other clocks are the system's. A program that reads them again and again waits for a time to come: then others
// run meanwhile.
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <threads.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cwchar>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/static_buffers.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

namespace {

/// The process's TZ. Changed in place, in an entry of the environment that stays: whoever calls libc's getenv()
/// meanwhile, without our lock, sees one name or the other and never an array that moves.
class ProcessZone {
 public:
  std::mutex mutex;

  /// Null: unset. With mutex held.
  void set(const char* zone) noexcept {
    const char* now = ::getenv("TZ");
    if (now != value()) {
      write(now);
      std::memcpy(entry_.data(), "TZ=", 3);
      ::putenv(entry_.data());
    }
    write(zone);
    ::tzset();
  }

 private:
  // A zone's name is a path or a rule: what is longer is no zone for libc either.
  static constexpr std::size_t value_max = 4096;

  char* value() noexcept { return entry_.data() + 3; }

  void write(const char* zone) noexcept {
    std::memcpy(entry_.data(), zone != nullptr ? "TZ=" : "_Z=", 3);  // by another name it is as good as unset
    const std::size_t length = zone != nullptr ? strnlen(zone, value_max) : 0;
    if (length > 0) std::memmove(value(), zone, length);
    value()[length] = '\0';
  }

  std::array<char, 3 + value_max + 1> entry_{};
};

ProcessZone& process_zone() noexcept {
  static ProcessZone zone;  // describes the process, as environ does
  return zone;
}

bool same(const char* a, const char* b) noexcept {
  return a == b || (a != nullptr && b != nullptr && std::strcmp(a, b) == 0);
}

/// timezone, daylight and tzname. Libc sets them when it reads a zone, and anew for each time that localtime() and its
/// kin are asked of.
struct ZoneVariables {
  long timezone;
  int daylight;
  std::array<char*, 2> tzname;  // libc keeps these for ever

  static ZoneVariables of_process() noexcept { return {::timezone, ::daylight, {::tzname[0], ::tzname[1]}}; }
  void put() const noexcept {
    ::timezone = timezone;
    ::daylight = daylight;
    std::ranges::copy(tzname, ::tzname);
  }
};

/// What libc has read for the instance already stays as the program has last seen it, and what other programs have
/// refined does not show. With the process's zone set to `wanted`, the instance's; null: none.
void take_up_zone(LibcState& state, const char* wanted, bool differs) {
  if (state.zone != nullptr && same(*state.zone ? (*state.zone)->c_str() : nullptr, wanted)) {
    ZoneVariables{*state.timezone, *state.daylight, *state.tzname}.put();
    return;
  }
  if (!differs) {
    static const ZoneVariables unrefined = ZoneVariables::of_process();
    unrefined.put();
  }
  state.zone = wanted != nullptr ? std::make_unique<const std::optional<std::string>>(wanted)
                                 : std::make_unique<const std::optional<std::string>>();
}

// Runs `body` with the instance's zone as the process's; then timezone, daylight and tzname are the instance's too.
template <class Body>
auto in_zone_of(LibcState& state, const Body& body) {
  ProcessZone& zone = process_zone();
  const std::lock_guard lock(zone.mutex);
  const char* const wanted = find_variable(state, "TZ");
  const char* const present = ::getenv("TZ");
  std::optional<std::string> before;
  const bool differs = !same(wanted, present);
  if (differs) {
    if (present != nullptr) before = present;
    zone.set(wanted);
  } else {
    ::tzset();
  }
  take_up_zone(state, wanted, differs);
  const auto result = body();
  const auto [timezone, daylight, tzname] = ZoneVariables::of_process();
  *state.timezone = timezone;
  *state.daylight = daylight;
  *state.tzname = tzname;
  if (differs) zone.set(before ? before->c_str() : nullptr);
  return result;
}

// --- what programs call

void own_tzset(LibcState& state) {
  in_zone_of(state, [] { return 0; });
}

std::tm* own_localtime_r(LibcState& state, const std::time_t* time, std::tm* result) {
  return in_zone_of(state, [&] { return ::localtime_r(time, result); });
}

std::tm* own_localtime(LibcState& state, const std::time_t* time) {
  std::tm* result = &shared_part(state.buffers).broken_down;
  return in_zone_of(state, [&] { return ::localtime_r(time, result); });
}

char* own_ctime(LibcState& state, const std::time_t* time) {
  StaticBuffers& buffers = shared_part(state.buffers);
  return print_time(buffers, in_zone_of(state, [&] { return ::localtime_r(time, &buffers.broken_down); }));
}

char* own_ctime_r(LibcState& state, const std::time_t* time, char* text) {
  return in_zone_of(state, [&] { return ::ctime_r(time, text); });
}

std::time_t own_mktime(LibcState& state, std::tm* time) {
  return in_zone_of(state, [&] { return ::mktime(time); });
}

std::size_t own_strftime(LibcState& state, char* text, std::size_t bytes, const char* format, const std::tm* time) {
  return in_zone_of(state, [&] { return ::strftime(text, bytes, format, time); });
}

std::size_t own_strftime_l(LibcState& state, char* text, std::size_t bytes, const char* format, const std::tm* time,
                           locale_t locale) {
  return in_zone_of(state, [&] { return ::strftime_l(text, bytes, format, time, locale); });
}

std::size_t own_wcsftime_l(LibcState& state, wchar_t* text, std::size_t length, const wchar_t* format,
                           const std::tm* time, locale_t locale) {
  return in_zone_of(state, [&] { return ::wcsftime_l(text, length, format, time, locale); });
}

std::size_t own_wcsftime(LibcState& state, wchar_t* text, std::size_t length, const wchar_t* format,
                         const std::tm* time) {
  return in_zone_of(state, [&] { return ::wcsftime(text, length, format, time); });
}

char* own_strptime(LibcState& state, const char* text, const char* format, std::tm* time) {
  return in_zone_of(state, [&] { return ::strptime(text, format, time); });
}

}  // namespace

void in_zone(LibcState& state, const std::function<void()>& body) {
  in_zone_of(state, [&] {
    body();
    return 0;
  });
}

void start_time_zone(Instance& instance) noexcept {
  LibcState& state = instance.libc();
  static std::array<char, 4> initial{'G', 'M', 'T', '\0'};  // programs may see char*, none may write it
  *state.tzname = {initial.data(), initial.data()};
}

std::span<const Binding> time_zone_bindings() {
  static const std::array table{
      bound<::tzset, own_tzset>("tzset"),
      bound<::localtime, own_localtime>("localtime"),
      bound<::localtime_r, own_localtime_r>("localtime_r"),
      bound<::ctime, own_ctime>("ctime"),
      bound<::ctime_r, own_ctime_r>("ctime_r"),
      bound<::mktime, own_mktime>("mktime"),
      bound<::mktime, own_mktime>("timelocal"),
      bound<::strftime, own_strftime>("strftime"),
      bound<::strftime_l, own_strftime_l>("strftime_l"),
      bound<::strftime_l, own_strftime_l>("__strftime_l"),
      bound<::wcsftime, own_wcsftime>("wcsftime"),
      bound<::wcsftime_l, own_wcsftime_l>("wcsftime_l"),
      bound<::wcsftime_l, own_wcsftime_l>("__wcsftime_l"),
      bound<::strptime, own_strptime>("strptime"),
      variable<&LibcState::timezone>("timezone"),
      variable<&LibcState::timezone>("__timezone"),
      variable<&LibcState::daylight>("daylight"),
      variable<&LibcState::daylight>("__daylight"),
      variable<&LibcState::tzname>("tzname"),
      variable<&LibcState::tzname>("__tzname"),
  };
  return table;
}

// ---------------------------------------------------------------- sleeping

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr long nanoseconds_per_second = 1'000'000'000;

/// What is left of the duration where a handler has cut it short; else nothing.
nanoseconds sleep_in(Instance& instance, nanoseconds duration) {
  const auto begin = std::chrono::steady_clock::now();
  if (sleep_in_turn(instance, duration) != Waited::interrupted) return nanoseconds(0);
  return std::max<nanoseconds>(duration - (std::chrono::steady_clock::now() - begin), nanoseconds(1));
}

unsigned bound_sleep(Instance& instance, unsigned time) {
  const nanoseconds left = sleep_in(instance, seconds(time));
  return static_cast<unsigned>(std::chrono::ceil<seconds>(left).count());
}

int bound_usleep(Instance& instance, useconds_t time) {
  return sleep_in(instance, microseconds(time)).count() == 0 ? 0 : failed(EINTR);
}

int sleep_for(Instance& instance, const timespec& time, timespec* rest) {
  if (!is_time(time)) return EINVAL;
  const nanoseconds left = sleep_in(instance, to_duration(time));
  if (rest != nullptr) *rest = {left.count() / nanoseconds_per_second, left.count() % nanoseconds_per_second};
  return left.count() == 0 ? 0 : EINTR;
}

int bound_nanosleep(Instance& instance, const timespec* time, timespec* rest) {
  const int error = sleep_for(instance, *time, rest);
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
    if (sleep_in(*instance, left).count() != 0) return EINTR;
  }
}

int bound_thrd_sleep(Instance& instance, const timespec* time, timespec* rest) {
  constexpr int interrupted = -1;
  constexpr int other_error = -2;
  const int error = sleep_for(instance, *time, rest);
  return error == 0 ? 0 : error == EINTR ? interrupted : other_error;
}

/// libc declares these nothrow, so what stops the machine must not come out of them: the program is left by a jump.
void yield_in(Instance& instance) noexcept {
  const ErrnoKept kept;
  bool stopped = false;
  try {
    instance.services().yield();
  } catch (...) {
    stopped = true;
  }
  if (stopped) instance.leave(0, false);
}

int bound_sched_yield(Instance& instance) {
  yield_in(instance);
  return 0;
}

void bound_thrd_yield() {
  if (Instance* instance = calling(__builtin_return_address(0))) {
    yield_in(*instance);
  } else {
    ::thrd_yield();
  }
}

// --- clocks

/// What a program gets for libc's function `native`.
template <auto native, class Type = decltype(plain(native))>
struct ClockCall;
template <auto native, class Result, class... Args>
struct ClockCall<native, Function<Result, Args...>> {
  static Result read(Args... args) {
    TaskContext* const context = here();
    if (context != nullptr && context->clock_reads.spin()) [[unlikely]]
      yield_in(*context->instance);
    return native(args...);  // afterwards: the time is that of the return
  }
};

}  // namespace

std::span<const Binding> sleep_bindings() {
  static const Binding table[] = {
      Binding::of("gettimeofday", ClockCall<::gettimeofday>::read),
      Binding::of("time", ClockCall<::time>::read),
      Binding::of("timespec_get", ClockCall<::timespec_get>::read),
      bound<::sleep, bound_sleep>("sleep"),
      bound<::usleep, bound_usleep>("usleep"),
      bound<::nanosleep, bound_nanosleep>("nanosleep"),
      bound<::nanosleep, bound_nanosleep>("__nanosleep"),
      Binding::of("clock_nanosleep", bound_clock_nanosleep),
      bound<::thrd_sleep, bound_thrd_sleep>("thrd_sleep"),
      bound<::sched_yield, bound_sched_yield>("sched_yield"),
      bound<::sched_yield, bound_sched_yield>("__sched_yield"),
      bound<::sched_yield, bound_sched_yield>("pthread_yield"),
      Binding::of("thrd_yield", bound_thrd_yield),
  };
  return table;
}

// ---------------------------------------------------------------- CPU time

namespace {

std::int64_t of_program(Instance& instance) {
  measure_cpu(instance);
  return cpu_used(instance);
}

/// Of the calling task or thread.
std::int64_t of_flow(Instance& instance) {
  measure_cpu(instance);
  const TaskContext* const context = here();
  return context != nullptr ? context->cpu.used() : cpu_used(instance);
}

timespec to_timespec(std::int64_t time) noexcept {
  return {time / nanoseconds_per_second, time % nanoseconds_per_second};
}

timeval to_timeval(std::int64_t time) noexcept {
  return {time / nanoseconds_per_second, time % nanoseconds_per_second / 1000};
}

/// What of `all` the system worked for the program: the process's share.
std::int64_t system_part(std::int64_t all, const rusage& process) noexcept {
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  const double system = seconds_of(process.ru_stime);
  const double both = system + seconds_of(process.ru_utime);
  return both > 0 ? static_cast<std::int64_t>(static_cast<double>(all) * (system / both)) : 0;
}

/// A loop that does nothing but ask lets others run.
void asked(Instance& instance) {
  TaskContext* const context = here();
  if (context != nullptr && context->clock_reads.spin()) [[unlikely]]
    yield_in(instance);
}

std::clock_t own_clock(Instance& instance) {
  asked(instance);
  return of_program(instance) / (nanoseconds_per_second / CLOCKS_PER_SEC);
}

clock_t own_times(Instance& instance, tms* times) {
  asked(instance);
  tms discarded{};
  const clock_t now = ::times(&discarded);  // children are the process's
  if (times == nullptr) return now;
  const std::int64_t all = of_program(instance);
  rusage process{};
  ::getrusage(RUSAGE_SELF, &process);
  const std::int64_t system = system_part(all, process);
  const long tick = nanoseconds_per_second / sysconf(_SC_CLK_TCK);
  times->tms_utime = (all - system) / tick;
  times->tms_stime = system / tick;
  times->tms_cutime = discarded.tms_cutime;
  times->tms_cstime = discarded.tms_cstime;
  return now;
}

// Beside the times all is the process's: memory, faults and switches of cells cannot be told apart.
int own_getrusage(Instance& instance, int who, rusage* usage) {
  asked(instance);
  if (const int result = ::getrusage(static_cast<__rusage_who>(who), usage); result != 0) return result;
  if (who != RUSAGE_SELF && who != RUSAGE_THREAD) return 0;
  rusage process{};
  ::getrusage(RUSAGE_SELF, &process);
  const std::int64_t all = who == RUSAGE_SELF ? of_program(instance) : of_flow(instance);
  const std::int64_t system = system_part(all, process);
  usage->ru_utime = to_timeval(all - system);
  usage->ru_stime = to_timeval(system);
  return 0;
}

int own_clock_gettime(clockid_t clock, timespec* time) {
  TaskContext* const context = here();
  if (context == nullptr) return ::clock_gettime(clock, time);
  if (context->clock_reads.spin()) [[unlikely]]
    yield_in(*context->instance);
  if (clock != CLOCK_PROCESS_CPUTIME_ID && clock != CLOCK_THREAD_CPUTIME_ID) return ::clock_gettime(clock, time);
  *time = to_timespec(clock == CLOCK_PROCESS_CPUTIME_ID ? of_program(*context->instance) : of_flow(*context->instance));
  return 0;
}

int own_clock_getcpuclockid(Instance& instance, pid_t process, clockid_t* clock) {
  if (process != 0 && process != pid_of(instance)) return ::clock_getcpuclockid(process, clock);
  *clock = CLOCK_PROCESS_CPUTIME_ID;
  return 0;
}

int own_pthread_getcpuclockid(Instance& /*instance*/, pthread_t thread, clockid_t* clock) {
  if (pthread_equal(thread, own_thread()) == 0) return ::pthread_getcpuclockid(thread, clock);
  *clock = CLOCK_THREAD_CPUTIME_ID;
  return 0;
}

}  // namespace

std::span<const Binding> cpu_time_bindings() {
  static const std::array table{
      Binding::of("clock_gettime", &own_clock_gettime),
      bound<::clock, own_clock>("clock"),
      bound<::times, own_times>("times"),
      bound<::getrusage, own_getrusage>("getrusage"),
      bound<::clock_getcpuclockid, own_clock_getcpuclockid>("clock_getcpuclockid"),
      bound<::pthread_getcpuclockid, own_pthread_getcpuclockid>("pthread_getcpuclockid"),
  };
  return table;
}

}  // namespace aplib::loader::libc
