// SPDX-License-Identifier: MIT
// Tzset and the variables behind localtime.
//
// libc has one time zone per process and no re-entrant way to another. So each call here sees to it that the
// process's zone is, while the call lasts, that of the instance's TZ. Where the two are equal, the usual case, that
// costs a comparison; otherwise libc reads the zone's file once or twice. One lock for the process, as libc has one
// itself.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cwchar>

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/environ.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/static_buffers.hpp"

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
  const auto result = body();
  state.timezone = ::timezone;
  state.daylight = ::daylight;
  state.tzname[0] = ::tzname[0];  // libc keeps these for ever
  state.tzname[1] = ::tzname[1];
  if (differs) zone.set(before ? before->c_str() : nullptr);
  return result;
}

// --- what programs call

void own_tzset() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::tzset();
  in_zone_of(*state, [] { return 0; });
}

std::tm* own_localtime_r(const std::time_t* time, std::tm* result) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::localtime_r(time, result);
  return in_zone_of(*state, [&] { return ::localtime_r(time, result); });
}

std::tm* own_localtime(const std::time_t* time) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::localtime(time);
  std::tm* result = &shared_part(state->buffers).broken_down;
  return in_zone_of(*state, [&] { return ::localtime_r(time, result); });
}

char* own_ctime(const std::time_t* time) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::ctime(time);
  StaticBuffers& buffers = shared_part(state->buffers);
  return print_time(buffers, in_zone_of(*state, [&] { return ::localtime_r(time, &buffers.broken_down); }));
}

char* own_ctime_r(const std::time_t* time, char* text) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::ctime_r(time, text);
  return in_zone_of(*state, [&] { return ::ctime_r(time, text); });
}

std::time_t own_mktime(std::tm* time) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::mktime(time);
  return in_zone_of(*state, [&] { return ::mktime(time); });
}

std::size_t own_strftime(char* text, std::size_t bytes, const char* format, const std::tm* time) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::strftime(text, bytes, format, time);
  return in_zone_of(*state, [&] { return ::strftime(text, bytes, format, time); });
}

std::size_t own_strftime_l(char* text, std::size_t bytes, const char* format, const std::tm* time, locale_t locale) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::strftime_l(text, bytes, format, time, locale);
  return in_zone_of(*state, [&] { return ::strftime_l(text, bytes, format, time, locale); });
}

std::size_t own_wcsftime(wchar_t* text, std::size_t length, const wchar_t* format, const std::tm* time) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::wcsftime(text, length, format, time);
  return in_zone_of(*state, [&] { return ::wcsftime(text, length, format, time); });
}

char* own_strptime(const char* text, const char* format, std::tm* time) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::strptime(text, format, time);
  return in_zone_of(*state, [&] { return ::strptime(text, format, time); });
}

}  // namespace

void start_time_zone(Instance& instance) noexcept {
  LibcState& state = instance.libc();
  static std::array<char, 4> initial{'G', 'M', 'T', '\0'};  // programs may see char*, none may write it
  state.tzname[0] = state.tzname[1] = initial.data();
}

std::span<const Binding> time_zone_bindings() {
  static const std::array table{
      Binding::of("tzset", &own_tzset),
      Binding::of("localtime", &own_localtime),
      Binding::of("localtime_r", &own_localtime_r),
      Binding::of("ctime", &own_ctime),
      Binding::of("ctime_r", &own_ctime_r),
      Binding::of("mktime", &own_mktime),
      Binding::of("timelocal", &own_mktime),
      Binding::of("strftime", &own_strftime),
      Binding::of("strftime_l", &own_strftime_l),
      Binding::of("__strftime_l", &own_strftime_l),
      Binding::of("wcsftime", &own_wcsftime),
      Binding::of("strptime", &own_strptime),
      Binding::datum("timezone", offsetof(LibcState, timezone)),
      Binding::datum("__timezone", offsetof(LibcState, timezone)),
      Binding::datum("daylight", offsetof(LibcState, daylight)),
      Binding::datum("__daylight", offsetof(LibcState, daylight)),
      Binding::datum("tzname", offsetof(LibcState, tzname)),
      Binding::datum("__tzname", offsetof(LibcState, tzname)),
  };
  return table;
}

}  // namespace aplib::loader::libc
