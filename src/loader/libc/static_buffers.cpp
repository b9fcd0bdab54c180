// SPDX-License-Identifier: MIT
// Functions that return a static buffer or keep their place in one: strtok, strerror, asctime, ....
//
// Users, groups, hosts, services: the answer lies in the instance's own buffer, one for each function as in libc.
// What setpwent() and its kin move, the place in the list, is the process's: two cells that enumerate at once each
// see a part (docs/privatization.md).
//
// Multibyte conversions: a function that is given no state keeps one itself. Here it is the instance's.
#include "loader/libc/static_buffers.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <grp.h>
#include <mntent.h>
#include <netdb.h>
#include <netinet/ether.h>
#include <pwd.h>
#include <regex.h>
#include <rpc/netdb.h>
#include <search.h>
#include <shadow.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuchar>
#include <cwchar>
#include <string_view>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"

// glibc's checked forms, which programs built with _FORTIFY_SOURCE call; the headers declare them only for those.
extern "C" {
std::size_t __wcrtomb_chk(char*, wchar_t, std::mbstate_t*, std::size_t);
std::size_t __mbsrtowcs_chk(wchar_t*, const char**, std::size_t, std::mbstate_t*, std::size_t);
std::size_t __wcsrtombs_chk(char*, const wchar_t**, std::size_t, std::mbstate_t*, std::size_t);
std::size_t __mbsnrtowcs_chk(wchar_t*, const char**, std::size_t, std::size_t, std::mbstate_t*, std::size_t);
std::size_t __wcsnrtombs_chk(char*, const wchar_t**, std::size_t, std::size_t, std::mbstate_t*, std::size_t);
}

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

// --- time; with zones: time.cpp

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

// ---------------------------------------------------------------- users, groups, hosts, services

namespace {

template <class Record>
struct Lookup {
  Record record{};
  std::vector<char> text;
};

}  // namespace

struct Lookups {
  Lookup<passwd> user_by_name, user_by_id, next_user, user_of_file;
  Lookup<group> group_by_name, group_by_id, next_group, group_of_file;
  Lookup<spwd> shadow_by_name, next_shadow, shadow_of_file;
  Lookup<hostent> host_by_name, host_by_name2, host_by_address, next_host;
  Lookup<netent> net_by_name, net_by_address, next_net;
  Lookup<servent> service_by_name, service_by_port, next_service;
  Lookup<protoent> protocol_by_name, protocol_by_number, next_protocol;
  Lookup<rpcent> rpc_by_name, rpc_by_number, next_rpc;
  Lookup<mntent> next_mount;
};

namespace {

// Asks `query(record, text, bytes, result)`, a function of the ..._r kind, with a larger buffer until the answer fits.
template <class Record, class Query>
Record* ask(Lookup<Record>& lookup, const Query& query) {
  constexpr std::size_t bytes_max = 64U << 20;
  if (lookup.text.empty()) lookup.text.resize(1024);
  for (;;) {
    Record* result = nullptr;
    const int error = query(&lookup.record, lookup.text.data(), lookup.text.size(), &result);
    if (error == ERANGE && lookup.text.size() < bytes_max) {
      lookup.text.resize(lookup.text.size() * 2);
      continue;
    }
    if (error != 0) errno = error;
    return result;
  }
}

Lookups& lookups_of(LibcState& state) { return shared_part(shared_part(state.buffers).lookups); }

// --- users

passwd* own_getpwnam(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getpwnam(name);
  return ask(lookups_of(*state).user_by_name, [=](auto... rest) { return ::getpwnam_r(name, rest...); });
}

passwd* own_getpwuid(uid_t id) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getpwuid(id);
  return ask(lookups_of(*state).user_by_id, [=](auto... rest) { return ::getpwuid_r(id, rest...); });
}

passwd* own_getpwent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getpwent();
  return ask(lookups_of(*state).next_user, ::getpwent_r);
}

passwd* own_fgetpwent(std::FILE* file) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::fgetpwent(file);
  return ask(lookups_of(*state).user_of_file, [=](auto... rest) { return ::fgetpwent_r(file, rest...); });
}

group* own_getgrnam(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getgrnam(name);
  return ask(lookups_of(*state).group_by_name, [=](auto... rest) { return ::getgrnam_r(name, rest...); });
}

group* own_getgrgid(gid_t id) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getgrgid(id);
  return ask(lookups_of(*state).group_by_id, [=](auto... rest) { return ::getgrgid_r(id, rest...); });
}

group* own_getgrent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getgrent();
  return ask(lookups_of(*state).next_group, ::getgrent_r);
}

group* own_fgetgrent(std::FILE* file) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::fgetgrent(file);
  return ask(lookups_of(*state).group_of_file, [=](auto... rest) { return ::fgetgrent_r(file, rest...); });
}

spwd* own_getspnam(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getspnam(name);
  return ask(lookups_of(*state).shadow_by_name, [=](auto... rest) { return ::getspnam_r(name, rest...); });
}

spwd* own_getspent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getspent();
  return ask(lookups_of(*state).next_shadow, ::getspent_r);
}

spwd* own_fgetspent(std::FILE* file) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::fgetspent(file);
  return ask(lookups_of(*state).shadow_of_file, [=](auto... rest) { return ::fgetspent_r(file, rest...); });
}

// --- the network's names

hostent* own_gethostbyname(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::gethostbyname(name);
  return ask(lookups_of(*state).host_by_name, [=](auto... rest) { return ::gethostbyname_r(name, rest..., &h_errno); });
}

hostent* own_gethostbyname2(const char* name, int family) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::gethostbyname2(name, family);
  return ask(lookups_of(*state).host_by_name2,
             [=](auto... rest) { return ::gethostbyname2_r(name, family, rest..., &h_errno); });
}

hostent* own_gethostbyaddr(const void* address, socklen_t bytes, int family) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::gethostbyaddr(address, bytes, family);
  return ask(lookups_of(*state).host_by_address,
             [=](auto... rest) { return ::gethostbyaddr_r(address, bytes, family, rest..., &h_errno); });
}

hostent* own_gethostent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::gethostent();
  return ask(lookups_of(*state).next_host, [](auto... rest) { return ::gethostent_r(rest..., &h_errno); });
}

netent* own_getnetbyname(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getnetbyname(name);
  return ask(lookups_of(*state).net_by_name, [=](auto... rest) { return ::getnetbyname_r(name, rest..., &h_errno); });
}

netent* own_getnetbyaddr(std::uint32_t net, int type) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getnetbyaddr(net, type);
  return ask(lookups_of(*state).net_by_address,
             [=](auto... rest) { return ::getnetbyaddr_r(net, type, rest..., &h_errno); });
}

netent* own_getnetent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getnetent();
  return ask(lookups_of(*state).next_net, [](auto... rest) { return ::getnetent_r(rest..., &h_errno); });
}

servent* own_getservbyname(const char* name, const char* protocol) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getservbyname(name, protocol);
  return ask(lookups_of(*state).service_by_name,
             [=](auto... rest) { return ::getservbyname_r(name, protocol, rest...); });
}

servent* own_getservbyport(int port, const char* protocol) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getservbyport(port, protocol);
  return ask(lookups_of(*state).service_by_port,
             [=](auto... rest) { return ::getservbyport_r(port, protocol, rest...); });
}

servent* own_getservent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getservent();
  return ask(lookups_of(*state).next_service, ::getservent_r);
}

protoent* own_getprotobyname(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getprotobyname(name);
  return ask(lookups_of(*state).protocol_by_name, [=](auto... rest) { return ::getprotobyname_r(name, rest...); });
}

protoent* own_getprotobynumber(int number) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getprotobynumber(number);
  return ask(lookups_of(*state).protocol_by_number,
             [=](auto... rest) { return ::getprotobynumber_r(number, rest...); });
}

protoent* own_getprotoent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getprotoent();
  return ask(lookups_of(*state).next_protocol, ::getprotoent_r);
}

rpcent* own_getrpcbyname(const char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getrpcbyname(name);
  return ask(lookups_of(*state).rpc_by_name, [=](auto... rest) { return ::getrpcbyname_r(name, rest...); });
}

rpcent* own_getrpcbynumber(int number) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getrpcbynumber(number);
  return ask(lookups_of(*state).rpc_by_number, [=](auto... rest) { return ::getrpcbynumber_r(number, rest...); });
}

rpcent* own_getrpcent() {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getrpcent();
  return ask(lookups_of(*state).next_rpc, ::getrpcent_r);
}

// --- mounts

mntent* own_getmntent(std::FILE* file) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (state == nullptr) return ::getmntent(file);
  Lookup<mntent>& lookup = lookups_of(*state).next_mount;
  lookup.text.resize(4096);  // as in libc; longer lines are cut
  return ::getmntent_r(file, &lookup.record, lookup.text.data(), static_cast<int>(lookup.text.size()));
}

}  // namespace

std::span<const Binding> databases_bindings() {
  static const std::array table{
      Binding::of("getpwnam", &own_getpwnam),
      Binding::of("getpwuid", &own_getpwuid),
      Binding::of("getpwent", &own_getpwent),
      Binding::of("fgetpwent", &own_fgetpwent),
      Binding::of("getgrnam", &own_getgrnam),
      Binding::of("getgrgid", &own_getgrgid),
      Binding::of("getgrent", &own_getgrent),
      Binding::of("fgetgrent", &own_fgetgrent),
      Binding::of("getspnam", &own_getspnam),
      Binding::of("getspent", &own_getspent),
      Binding::of("fgetspent", &own_fgetspent),
      Binding::of("gethostbyname", &own_gethostbyname),
      Binding::of("gethostbyname2", &own_gethostbyname2),
      Binding::of("gethostbyaddr", &own_gethostbyaddr),
      Binding::of("gethostent", &own_gethostent),
      Binding::of("getnetbyname", &own_getnetbyname),
      Binding::of("getnetbyaddr", &own_getnetbyaddr),
      Binding::of("getnetent", &own_getnetent),
      Binding::of("getservbyname", &own_getservbyname),
      Binding::of("getservbyport", &own_getservbyport),
      Binding::of("getservent", &own_getservent),
      Binding::of("getprotobyname", &own_getprotobyname),
      Binding::of("getprotobynumber", &own_getprotobynumber),
      Binding::of("getprotoent", &own_getprotoent),
      Binding::of("getrpcbyname", &own_getrpcbyname),
      Binding::of("getrpcbynumber", &own_getrpcbynumber),
      Binding::of("getrpcent", &own_getrpcent),
      Binding::of("getmntent", &own_getmntent),
  };
  return table;
}

// ---------------------------------------------------------------- multibyte conversions

struct Conversions {
  std::mbstate_t multibyte{};  ///< mblen, mbtowc, wctomb
  std::mbstate_t mbrlen{}, mbrtowc{}, wcrtomb{}, mbsrtowcs{}, wcsrtombs{}, mbsnrtowcs{}, wcsnrtombs{};
  std::mbstate_t mbrtoc16{}, c16rtomb{}, mbrtoc32{}, c32rtomb{};
};

namespace {

// The caller's state, or the instance's for this function. Null, libc's own: no instance.
std::mbstate_t* state_for(std::mbstate_t* given, const void* caller, std::mbstate_t Conversions::*own) {
  if (given != nullptr) return given;
  LibcState* state = state_of(caller);
  if (state == nullptr) return nullptr;
  return &(shared_part(shared_part(state->buffers).conversions).*own);
}

// No locale of glibc has a conversion state that outlives a character, so forgetting the state is all that a null
// string asks for.
int forget(std::mbstate_t* state) {
  if (state != nullptr) *state = {};
  return 0;
}

int own_mblen(const char* text, std::size_t bytes) {
  std::mbstate_t* state = state_for(nullptr, __builtin_return_address(0), &Conversions::multibyte);
  if (text == nullptr) return forget(state);
  std::mbstate_t fresh{};  // each call stands for itself, as in libc
  const auto result = static_cast<std::ptrdiff_t>(::mbrtowc(nullptr, text, bytes, &fresh));
  return result < 0 ? -1 : static_cast<int>(result);
}

int own_mbtowc(wchar_t* character, const char* text, std::size_t bytes) {
  std::mbstate_t* state = state_for(nullptr, __builtin_return_address(0), &Conversions::multibyte);
  if (text == nullptr) return forget(state);
  const auto result = static_cast<std::ptrdiff_t>(::mbrtowc(character, text, bytes, state));
  if (result < 0) forget(state);
  return result < 0 ? -1 : static_cast<int>(result);
}

int own_wctomb(char* text, wchar_t character) {
  std::mbstate_t* state = state_for(nullptr, __builtin_return_address(0), &Conversions::multibyte);
  if (text == nullptr) return forget(state);
  return static_cast<int>(::wcrtomb(text, character, state));
}

int own_wctomb_chk(char* text, wchar_t character, std::size_t bytes) {
  std::mbstate_t* state = state_for(nullptr, __builtin_return_address(0), &Conversions::multibyte);
  if (text == nullptr) return forget(state);
  return static_cast<int>(__wcrtomb_chk(text, character, state, bytes));
}

std::size_t own_mbrlen(const char* text, std::size_t bytes, std::mbstate_t* state) {
  return ::mbrtowc(nullptr, text, bytes, state_for(state, __builtin_return_address(0), &Conversions::mbrlen));
}

std::size_t own_mbrtowc(wchar_t* character, const char* text, std::size_t bytes, std::mbstate_t* state) {
  return ::mbrtowc(character, text, bytes, state_for(state, __builtin_return_address(0), &Conversions::mbrtowc));
}

std::size_t own_wcrtomb(char* text, wchar_t character, std::mbstate_t* state) {
  return ::wcrtomb(text, character, state_for(state, __builtin_return_address(0), &Conversions::wcrtomb));
}

std::size_t own_wcrtomb_chk(char* text, wchar_t character, std::mbstate_t* state, std::size_t bytes) {
  return __wcrtomb_chk(text, character, state_for(state, __builtin_return_address(0), &Conversions::wcrtomb), bytes);
}

std::size_t own_mbsrtowcs(wchar_t* to, const char** from, std::size_t length, std::mbstate_t* state) {
  return ::mbsrtowcs(to, from, length, state_for(state, __builtin_return_address(0), &Conversions::mbsrtowcs));
}

std::size_t own_mbsrtowcs_chk(wchar_t* to, const char** from, std::size_t length, std::mbstate_t* state,
                              std::size_t room) {
  return __mbsrtowcs_chk(to, from, length, state_for(state, __builtin_return_address(0), &Conversions::mbsrtowcs),
                         room);
}

std::size_t own_wcsrtombs(char* to, const wchar_t** from, std::size_t bytes, std::mbstate_t* state) {
  return ::wcsrtombs(to, from, bytes, state_for(state, __builtin_return_address(0), &Conversions::wcsrtombs));
}

std::size_t own_wcsrtombs_chk(char* to, const wchar_t** from, std::size_t bytes, std::mbstate_t* state,
                              std::size_t room) {
  return __wcsrtombs_chk(to, from, bytes, state_for(state, __builtin_return_address(0), &Conversions::wcsrtombs), room);
}

std::size_t own_mbsnrtowcs(wchar_t* to, const char** from, std::size_t bytes, std::size_t length,
                           std::mbstate_t* state) {
  return ::mbsnrtowcs(to, from, bytes, length, state_for(state, __builtin_return_address(0), &Conversions::mbsnrtowcs));
}

std::size_t own_mbsnrtowcs_chk(wchar_t* to, const char** from, std::size_t bytes, std::size_t length,
                               std::mbstate_t* state, std::size_t room) {
  return __mbsnrtowcs_chk(to, from, bytes, length,
                          state_for(state, __builtin_return_address(0), &Conversions::mbsnrtowcs), room);
}

std::size_t own_wcsnrtombs(char* to, const wchar_t** from, std::size_t length, std::size_t bytes,
                           std::mbstate_t* state) {
  return ::wcsnrtombs(to, from, length, bytes, state_for(state, __builtin_return_address(0), &Conversions::wcsnrtombs));
}

std::size_t own_wcsnrtombs_chk(char* to, const wchar_t** from, std::size_t length, std::size_t bytes,
                               std::mbstate_t* state, std::size_t room) {
  return __wcsnrtombs_chk(to, from, length, bytes,
                          state_for(state, __builtin_return_address(0), &Conversions::wcsnrtombs), room);
}

std::size_t own_mbrtoc16(char16_t* character, const char* text, std::size_t bytes, std::mbstate_t* state) {
  return ::mbrtoc16(character, text, bytes, state_for(state, __builtin_return_address(0), &Conversions::mbrtoc16));
}

std::size_t own_c16rtomb(char* text, char16_t character, std::mbstate_t* state) {
  return ::c16rtomb(text, character, state_for(state, __builtin_return_address(0), &Conversions::c16rtomb));
}

std::size_t own_mbrtoc32(char32_t* character, const char* text, std::size_t bytes, std::mbstate_t* state) {
  return ::mbrtoc32(character, text, bytes, state_for(state, __builtin_return_address(0), &Conversions::mbrtoc32));
}

std::size_t own_c32rtomb(char* text, char32_t character, std::mbstate_t* state) {
  return ::c32rtomb(text, character, state_for(state, __builtin_return_address(0), &Conversions::c32rtomb));
}

}  // namespace

std::span<const Binding> conversions_bindings() {
  static const std::array table{
      Binding::of("mblen", &own_mblen),
      Binding::of("mbtowc", &own_mbtowc),
      Binding::of("wctomb", &own_wctomb),
      Binding::of("__wctomb_chk", &own_wctomb_chk),
      Binding::of("mbrlen", &own_mbrlen),
      Binding::of("__mbrlen", &own_mbrlen),
      Binding::of("mbrtowc", &own_mbrtowc),
      Binding::of("wcrtomb", &own_wcrtomb),
      Binding::of("__wcrtomb_chk", &own_wcrtomb_chk),
      Binding::of("mbsrtowcs", &own_mbsrtowcs),
      Binding::of("__mbsrtowcs_chk", &own_mbsrtowcs_chk),
      Binding::of("wcsrtombs", &own_wcsrtombs),
      Binding::of("__wcsrtombs_chk", &own_wcsrtombs_chk),
      Binding::of("mbsnrtowcs", &own_mbsnrtowcs),
      Binding::of("__mbsnrtowcs_chk", &own_mbsnrtowcs_chk),
      Binding::of("wcsnrtombs", &own_wcsnrtombs),
      Binding::of("__wcsnrtombs_chk", &own_wcsnrtombs_chk),
      Binding::of("mbrtoc16", &own_mbrtoc16),
      Binding::of("c16rtomb", &own_c16rtomb),
      Binding::of("mbrtoc32", &own_mbrtoc32),
      Binding::of("c32rtomb", &own_c32rtomb),
  };
  return table;
}

}  // namespace aplib::loader::libc
