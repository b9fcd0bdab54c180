// SPDX-License-Identifier: MIT
// Functions that return a static buffer or keep their place in one: strtok, strerror, asctime, ....
#include "loader/libc/static_buffers.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <netinet/ether.h>
#include <regex.h>
#include <search.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"

namespace aplib::loader::libc {

struct SearchTable {
  hsearch_data table{};
  ~SearchTable() { hdestroy_r(&table); }
};

struct PatternMatcher {
  re_pattern_buffer pattern{};
  ~PatternMatcher() { regfree(&pattern); }
};

char* print_time(StaticBuffers& buffers, const std::tm* time) {
  if (time == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  static constexpr std::array<std::string_view, 7> days{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array<std::string_view, 12> months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto word = [](const auto& words, int i) {
    return i >= 0 && static_cast<std::size_t>(i) < words.size() ? words[static_cast<std::size_t>(i)]
                                                                : std::string_view("???");
  };
  const auto end =
      fmt::format_to_n(buffers.time_text.data(), buffers.time_text.size() - 1, "{} {}{:3} {:02}:{:02}:{:02} {}\n",
                       word(days, time->tm_wday), word(months, time->tm_mon), time->tm_mday, time->tm_hour,
                       time->tm_min, time->tm_sec, 1900L + time->tm_year);
  *end.out = '\0';
  return buffers.time_text.data();
}

namespace {

StaticBuffers& buffers_of(LibcState& state) { return shared_part(state.buffers); }

// --- text

char* own_strtok(char* text, const char* delimiters) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return std::strtok(text, delimiters);
  return ::strtok_r(text, delimiters, &buffers_of(*state).next_token);
}

char* own_strerror(int number) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return std::strerror(number);
  auto& text = buffers_of(*state).error_text;
  return ::strerror_r(number, text.data(), text.size());
}

char* own_strsignal(int number) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::strsignal(number);
  auto& text = buffers_of(*state).signal_text;
  const std::string_view name = ::strsignal(number);  // perhaps the thread's own buffer, which nobody else uses so soon
  text[name.copy(text.data(), text.size() - 1)] = '\0';
  return text.data();
}

char* own_l64a(long number) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::l64a(number);
  static constexpr std::string_view digits = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  auto& text = buffers_of(*state).base64;
  std::size_t length = 0;
  for (auto rest = static_cast<std::uint32_t>(number); rest != 0; rest >>= 6) text[length++] = digits[rest & 63];
  text[length] = '\0';
  return text.data();
}

// Digits of the largest finite number, and room for those asked for; libc cuts longer wishes the same way.
constexpr std::size_t double_digits = 400;
constexpr std::size_t long_double_digits = 5200;

template <class Number>
char* digits_of(std::vector<char>& buffer, std::size_t bytes, Number value, int count, int* point, int* sign,
                int (*convert)(Number, int, int*, int*, char*, std::size_t)) {
  buffer.resize(bytes);
  convert(value, count, point, sign, buffer.data(), buffer.size());
  return buffer.data();
}

char* own_ecvt(double value, int count, int* point, int* sign) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::ecvt(value, count, point, sign);
  return digits_of<double>(buffers_of(*state).ecvt, double_digits, value, count, point, sign, ::ecvt_r);
}

char* own_fcvt(double value, int count, int* point, int* sign) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::fcvt(value, count, point, sign);
  return digits_of<double>(buffers_of(*state).fcvt, double_digits, value, count, point, sign, ::fcvt_r);
}

char* own_qecvt(long double value, int count, int* point, int* sign) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::qecvt(value, count, point, sign);
  return digits_of<long double>(buffers_of(*state).qecvt, long_double_digits, value, count, point, sign, ::qecvt_r);
}

char* own_qfcvt(long double value, int count, int* point, int* sign) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::qfcvt(value, count, point, sign);
  return digits_of<long double>(buffers_of(*state).qfcvt, long_double_digits, value, count, point, sign, ::qfcvt_r);
}

// --- time; with zones: time_zone.cpp

char* own_asctime(const std::tm* time) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return std::asctime(time);
  return print_time(buffers_of(*state), time);
}

std::tm* own_gmtime(const std::time_t* time) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return std::gmtime(time);
  return ::gmtime_r(time, &buffers_of(*state).broken_down);
}

// --- names and addresses

// `fill` writes a name of at most the given bytes and returns 0 or errno.
template <class Fill>
char* name_by(LibcState& state, const Fill& fill) {
  auto& name = buffers_of(state).name;
  const int error = fill(name.data(), name.size());
  if (error == 0) return name.data();
  errno = error;
  return nullptr;
}

char* own_ttyname(int descriptor) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::ttyname(descriptor);
  return name_by(*state, [=](char* name, std::size_t bytes) { return ::ttyname_r(descriptor, name, bytes); });
}

char* own_ptsname(int descriptor) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::ptsname(descriptor);
  return name_by(*state, [=](char* name, std::size_t bytes) { return ::ptsname_r(descriptor, name, bytes); });
}

char* own_getlogin() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getlogin();
  return name_by(*state, [](char* name, std::size_t bytes) { return ::getlogin_r(name, bytes); });
}

char* own_tmpnam(char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (name == nullptr && state != nullptr) name = buffers_of(*state).name.data();
  // By name, since the linker warns everyone who refers to it. The program has been warned when it was linked.
  using Function = char* (*)(char*);
  static const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "tmpnam_r"));
  return function != nullptr ? function(name) : nullptr;
}

char* own_inet_ntoa(in_addr address) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::inet_ntoa(address);
  auto& text = buffers_of(*state).address_text;
  ::inet_ntop(AF_INET, &address, text.data(), INET_ADDRSTRLEN);
  return text.data();
}

char* own_ether_ntoa(const ether_addr* address) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::ether_ntoa(address);
  return ::ether_ntoa_r(address, buffers_of(*state).ether_text.data());
}

ether_addr* own_ether_aton(const char* text) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::ether_aton(text);
  auto& address = buffers_of(*state).ether_address;
  static_assert(sizeof(ether_addr) <= sizeof address && alignof(ether_addr) == 1);
  return ::ether_aton_r(text, reinterpret_cast<ether_addr*>(address.data()));
}

// --- tables and patterns

int own_hcreate(std::size_t entries) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::hcreate(entries);
  return ::hcreate_r(entries, &shared_part(buffers_of(*state).search).table);
}

ENTRY* own_hsearch(ENTRY item, ACTION action) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::hsearch(item, action);
  ENTRY* found = nullptr;
  ::hsearch_r(item, action, &found, &shared_part(buffers_of(*state).search).table);
  return found;
}

void own_hdestroy() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::hdestroy();
  ::hdestroy_r(&shared_part(buffers_of(*state).search).table);
}

char* own_re_comp(const char* text) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return nullptr;
  re_pattern_buffer& pattern = shared_part(buffers_of(*state).pattern).pattern;
  if (text == nullptr || *text == '\0')
    return pattern.buffer != nullptr ? nullptr : const_cast<char*>("No previous regular expression");
  regfree(&pattern);
  pattern = {};
  pattern.newline_anchor = 1;
  return const_cast<char*>(re_compile_pattern(text, std::strlen(text), &pattern));
}

int own_re_exec(const char* text) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return 0;
  const auto length = static_cast<regoff_t>(std::strlen(text));
  return re_search(&shared_part(buffers_of(*state).pattern).pattern, text, length, 0, length, nullptr) >= 0 ? 1 : 0;
}

}  // namespace

std::span<const Binding> static_buffers_bindings() {
  static const std::array table{
      Binding::of("strtok", &own_strtok),
      Binding::of("strerror", &own_strerror),
      Binding::of("strsignal", &own_strsignal),
      Binding::of("l64a", &own_l64a),
      Binding::of("ecvt", &own_ecvt),
      Binding::of("fcvt", &own_fcvt),
      Binding::of("qecvt", &own_qecvt),
      Binding::of("qfcvt", &own_qfcvt),
      Binding::of("asctime", &own_asctime),
      Binding::of("gmtime", &own_gmtime),
      Binding::of("ttyname", &own_ttyname),
      Binding::of("ptsname", &own_ptsname),
      Binding::of("getlogin", &own_getlogin),
      Binding::of("tmpnam", &own_tmpnam),
      Binding::of("inet_ntoa", &own_inet_ntoa),
      Binding::of("ether_ntoa", &own_ether_ntoa),
      Binding::of("ether_aton", &own_ether_aton),
      Binding::of("hcreate", &own_hcreate),
      Binding::of("hsearch", &own_hsearch),
      Binding::of("hdestroy", &own_hdestroy),
      Binding::of("re_comp", &own_re_comp),
      Binding::of("re_exec", &own_re_exec),
  };
  return table;
}

}  // namespace aplib::loader::libc
