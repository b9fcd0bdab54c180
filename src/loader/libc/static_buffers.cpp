// SPDX-License-Identifier: MIT
// Functions that return a static buffer or keep their place in one: strtok, strerror, asctime, ...
//
// Users, groups, hosts, services: the answer lies in the instance's own buffer, one for each function as in libc. The
// place in the list, which setpwent() and its relatives move, is the instance's, too.
//
// Multibyte conversions: a function that gets no state keeps one itself. Here it is the instance's.
#include "loader/libc/static_buffers.hpp"
#include "loader/libc/streams.hpp"

#include <aliases.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fstab.h>
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
#include <utmp.h>
#include <utmpx.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuchar>
#include <cwchar>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"

// glibc's checked forms, which programs built with _FORTIFY_SOURCE call; the headers declare them only for those.
extern "C" {
int __wctomb_chk(char*, wchar_t, std::size_t);
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

char* own_strtok(LibcState& state, char* text, const char* delimiters) {
  return ::strtok_r(text, delimiters, &buffers_of(state).next_token);
}

char* own_strerror(LibcState& state, int number) {
  auto& text = buffers_of(state).error_text;
  return ::strerror_r(number, text.data(), text.size());
}

char* own_strsignal(LibcState& state, int number) {
  auto& text = buffers_of(state).signal_text;
  const std::string_view name = ::strsignal(number);  // perhaps the thread's own buffer, which nobody else
                                                      // uses so soon
  text[name.copy(text.data(), text.size() - 1)] = '\0';
  return text.data();
}

char* own_l64a(LibcState& state, long number) {
  static constexpr std::string_view digits = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  auto& text = buffers_of(state).base64;
  std::size_t length = 0;
  for (auto rest = static_cast<std::uint32_t>(number); rest != 0; rest >>= 6) text[length++] = digits[rest & 63];
  text[length] = '\0';
  return text.data();
}

// Digits of the largest finite number, and room for those asked for; libc cuts longer wishes the same way.
constexpr std::size_t double_digits = 400;
constexpr std::size_t long_double_digits = 5200;

/// What a program gets for `native`, whose re-entrant form is `convert`: digits
/// in `buffer`, which has `bytes`.
template <auto native, auto convert, std::vector<char> StaticBuffers::*buffer, std::size_t bytes>
Binding digits(std::string_view name) noexcept {
  constexpr auto own = [](LibcState& state, auto value, int count, int* point, int* sign) {
    std::vector<char>& text = buffers_of(state).*buffer;
    text.resize(bytes);
    convert(value, count, point, sign, text.data(), text.size());
    return text.data();
  };
  return bound<native, own>(name);
}

// --- time; with zones: time.cpp

char* own_asctime(LibcState& state, const std::tm* time) { return print_time(buffers_of(state), time); }

std::tm* own_gmtime(LibcState& state, const std::time_t* time) {
  return ::gmtime_r(time, &buffers_of(state).broken_down);
}

// --- names and addresses

/// What a program gets for `native`, whose re-entrant form is `fill`.
template <auto native, auto fill>
Binding name_by(std::string_view name) noexcept {
  constexpr auto own = [](Instance& instance, auto... descriptor) -> char* {
    auto& text = buffers_of(instance.libc()).name;
    const int error = fill(redirected(instance, descriptor)..., text.data(), text.size());
    if (error == 0) return text.data();
    errno = error;
    return nullptr;
  };
  return bound<native, own>(name);
}

char* own_tmpnam(char* name) {
  LibcState* state = state_of(__builtin_return_address(0));
  if (name == nullptr && state != nullptr) name = buffers_of(*state).name.data();
  // By name, since the linker warns everyone who refers to it. The program has been warned when it was linked.
  using Function = char* (*)(char*);
  static const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "tmpnam_r"));
  return function != nullptr ? function(name) : nullptr;
}

char* own_inet_ntoa(LibcState& state, in_addr address) {
  auto& text = buffers_of(state).address_text;
  ::inet_ntop(AF_INET, &address, text.data(), INET_ADDRSTRLEN);
  return text.data();
}

char* own_cuserid(LibcState& state, char* text) {
  return ::cuserid(text != nullptr ? text : buffers_of(state).name.data());
}

char* own_ether_ntoa(LibcState& state, const ether_addr* address) {
  return ::ether_ntoa_r(address, buffers_of(state).ether_text.data());
}

ether_addr* own_ether_aton(LibcState& state, const char* text) {
  auto& address = buffers_of(state).ether_address;
  static_assert(sizeof(ether_addr) <= sizeof address && alignof(ether_addr) == 1);
  return ::ether_aton_r(text, reinterpret_cast<ether_addr*>(address.data()));
}

// --- tables and patterns

int own_hcreate(LibcState& state, std::size_t entries) {
  return ::hcreate_r(entries, &shared_part(buffers_of(state).search).table);
}

ENTRY* own_hsearch(LibcState& state, ENTRY item, ACTION action) {
  ENTRY* found = nullptr;
  ::hsearch_r(item, action, &found, &shared_part(buffers_of(state).search).table);
  return found;
}

void own_hdestroy(LibcState& state) { ::hdestroy_r(&shared_part(buffers_of(state).search).table); }

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
      bound<std::strtok, own_strtok>("strtok"),
      bound<std::strerror, own_strerror>("strerror"),
      bound<::strsignal, own_strsignal>("strsignal"),
      bound<::l64a, own_l64a>("l64a"),
      digits<::ecvt, ::ecvt_r, &StaticBuffers::ecvt, double_digits>("ecvt"),
      digits<::fcvt, ::fcvt_r, &StaticBuffers::fcvt, double_digits>("fcvt"),
      digits<::qecvt, ::qecvt_r, &StaticBuffers::qecvt, long_double_digits>("qecvt"),
      digits<::qfcvt, ::qfcvt_r, &StaticBuffers::qfcvt, long_double_digits>("qfcvt"),
      bound<std::asctime, own_asctime>("asctime"),
      bound<std::gmtime, own_gmtime>("gmtime"),
      name_by<::ttyname, ::ttyname_r>("ttyname"),
      name_by<::ptsname, ::ptsname_r>("ptsname"),
      name_by<::getlogin, ::getlogin_r>("getlogin"),
      bound<::cuserid, own_cuserid>("cuserid"),
      Binding::of("tmpnam", &own_tmpnam),
      bound<::inet_ntoa, own_inet_ntoa>("inet_ntoa"),
      bound<::ether_ntoa, own_ether_ntoa>("ether_ntoa"),
      bound<::ether_aton, own_ether_aton>("ether_aton"),
      bound<::hcreate, own_hcreate>("hcreate"),
      bound<::hsearch, own_hsearch>("hsearch"),
      bound<::hdestroy, own_hdestroy>("hdestroy"),
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
  std::size_t position = 0;  // of those that walk through a list
};

}  // namespace

namespace {

/// A whole list of the system's, as it was when the program began to walk through it.
template <class Record>
struct Listing {
  std::deque<Record> records;
  std::deque<std::string> texts;  ///< What the records point to.
  std::size_t position = 0;
  bool is_read = false;

  char* keep(const char* text) { return text != nullptr ? texts.emplace_back(text).data() : nullptr; }
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
  Lookup<aliasent> alias_by_name, next_alias;
  Listing<char*> shells;
  Listing<fstab> file_systems;
  Listing<utmp> logins;
  Listing<utmpx> logins_of_posix;
  std::string password;
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

/// What a program gets for `native`, whose re-entrant form is `query`: the
/// answer lies in `lookup`.
template <auto native, auto query, auto lookup, class Type = decltype(plain(native))>
struct Database;
template <auto native, auto query, auto lookup, class Record, class... Args>
struct Database<native, query, lookup, Function<Record*, Args...>> {
  static constexpr bool tells_host_error = requires(Args... args, Record* record, char* text, Record** result) {
                                             query(args..., record, text, std::size_t{}, result, &h_errno);
                                           };
  static Record* answer(LibcState& state, Args... args) {
    return ask(lookups_of(state).*lookup, [=](Record* record, char* text, std::size_t bytes, Record** result) {
      if constexpr (tells_host_error) {
        return query(args..., record, text, bytes, result, &h_errno);
      } else {
        return query(args..., record, text, bytes, result);
      }
    });
  }
};
template <auto native, auto query, auto lookup>
Binding database(std::string_view name) noexcept {
  return bound<native, Database<native, query, lookup>::answer>(name);
}

/// A walk through a list (getpwent and the like), by libc's own, which has one position for the process. Where another
/// instance has used it meanwhile, it goes back to the beginning, and on to the instance's place. `rewind` is
/// setpwent() and the like, `query` the re-entrant form.
template <auto query, auto rewind, auto end, auto lookup>
class Walk {
  using Own = std::remove_reference_t<decltype(std::declval<Lookups&>().*lookup)>;
  using Record = decltype(Own::record);

 public:
  static Record* next(LibcState& state) {
    const std::lock_guard lock(mutex);
    go_to(state);
    Own& own = lookups_of(state).*lookup;
    Record* const found = take(own);
    if (found != nullptr) ++own.position;
    return found;
  }

  /// `query` itself, which is bound too.
  static int next_into(LibcState& state, Record* record, char* text, std::size_t bytes, Record** result) {
    const std::lock_guard lock(mutex);
    go_to(state);
    const int error = query(record, text, bytes, result);
    if (error == 0) ++(lookups_of(state).*lookup).position;
    return error;
  }

  static void begin(LibcState& state) {
    restart(state, [] { call(rewind, 0); });
  }
  static void begin_open(LibcState& state, int stays_open) {
    restart(state, [=] { call(rewind, stays_open); });
  }
  static void finish(LibcState& state) {
    restart(state, [] { end(); });
  }

 private:
  static inline std::mutex mutex;  // of libc's position
  static inline std::uint32_t owner = 0;

  template <class Function>
  static void call(Function function, int stays_open) {
    if constexpr (std::is_invocable_v<Function, int>) {
      function(stays_open);
    } else {
      function();
    }
  }

  static Record* take(Own& into) {
    return ask(into, [](Record* record, char* text, std::size_t bytes, Record** result) {
      if constexpr (requires { query(record, text, bytes, result, &h_errno); }) {
        return query(record, text, bytes, result, &h_errno);
      } else {
        return query(record, text, bytes, result);
      }
    });
  }

  static void go_to(LibcState& state) {
    if (owner == state.number) return;
    const std::size_t position = (lookups_of(state).*lookup).position;
    call(rewind, 0);
    owner = state.number;
    Own passed;
    for (std::size_t i = 0; i < position && take(passed) != nullptr; ++i) {
    }
  }

  template <class Change>
  static void restart(LibcState& state, const Change& change) {
    const std::lock_guard lock(mutex);
    change();
    owner = state.number;
    (lookups_of(state).*lookup).position = 0;
  }
};

// --- lists that libc has no re-entrant form for

char* copy_of(Listing<char*>& listing, const char* shell) { return listing.keep(shell); }
utmp copy_of(Listing<utmp>&, const utmp* login) { return *login; }
utmpx copy_of(Listing<utmpx>&, const utmpx* login) { return *login; }
fstab copy_of(Listing<fstab>& listing, const fstab* entry) {
  fstab copy = *entry;
  for (char** const text : {&copy.fs_spec, &copy.fs_file, &copy.fs_vfstype, &copy.fs_mntops})
    *text = listing.keep(*text);
  for (const char* const type : {FSTAB_RW, FSTAB_RQ, FSTAB_RO, FSTAB_SW, FSTAB_XX}) {
    if (std::strcmp(entry->fs_type, type) == 0) copy.fs_type = type;
  }
  return copy;
}

std::mutex walking;  // libc's positions

/// A walk through a list, which is copied as a whole. `first`, `next`, `last`: setusershell() and so on.
template <auto first, auto next, auto last, auto listing>
struct Walked {
  using Entry = decltype(next());

  static Entry step(LibcState& state) {
    auto& own = lookups_of(state).*listing;
    read(own);
    if (own.position == own.records.size()) return nullptr;
    if constexpr (std::is_same_v<Entry, char*>) {
      return own.records[own.position++];
    } else {
      return &own.records[own.position++];
    }
  }
  static decltype(first()) begin(LibcState& state) {
    lookups_of(state).*listing = {};
    if constexpr (!std::is_void_v<decltype(first())>) return 1;
  }
  static void finish(LibcState& state) { begin(state); }

 private:
  template <class Own>
  static void read(Own& own) {
    if (own.is_read) return;
    const std::lock_guard lock(walking);
    first();
    while (const Entry entry = next()) own.records.push_back(copy_of(own, entry));
    last();
    own.is_read = true;
  }
};

/// Asks at the terminal, which all cells share, one after the other.
char* own_getpass(LibcState& state, const char* prompt) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const char* const answer = ::getpass(prompt);
  if (answer == nullptr) return nullptr;
  std::string& own = lookups_of(state).password;
  own = answer;
  return own.data();
}

// --- mounts

mntent* own_getmntent(LibcState& state, std::FILE* file) {
  Lookup<mntent>& lookup = lookups_of(state).next_mount;
  lookup.text.resize(4096);  // as in libc; longer lines are cut
  return ::getmntent_r(file, &lookup.record, lookup.text.data(), static_cast<int>(lookup.text.size()));
}

/// Of aliases, and of lists that libc has no re-entrant form for.
std::vector<Binding> list_rows() {
  using Aliases = Walk<::getaliasent_r, ::setaliasent, ::endaliasent, &Lookups::next_alias>;
  using Shells = Walked<::setusershell, ::getusershell, ::endusershell, &Lookups::shells>;
  using FileSystems = Walked<::setfsent, ::getfsent, ::endfsent, &Lookups::file_systems>;
  using Logins = Walked<::setutent, ::getutent, ::endutent, &Lookups::logins>;
  using PosixLogins = Walked<::setutxent, ::getutxent, ::endutxent, &Lookups::logins_of_posix>;
  return {
      database<::getaliasbyname, ::getaliasbyname_r, &Lookups::alias_by_name>("getaliasbyname"),
      bound<::getaliasent, Aliases::next>("getaliasent"),
      bound<::setaliasent, Aliases::begin>("setaliasent"),
      bound<::endaliasent, Aliases::finish>("endaliasent"),
      bound<::getaliasent_r, Aliases::next_into>("getaliasent_r"),
      bound<::getusershell, Shells::step>("getusershell"),
      bound<::setusershell, Shells::begin>("setusershell"),
      bound<::endusershell, Shells::finish>("endusershell"),
      bound<::getfsent, FileSystems::step>("getfsent"),
      bound<::setfsent, FileSystems::begin>("setfsent"),
      bound<::endfsent, FileSystems::finish>("endfsent"),
      bound<::getutent, Logins::step>("getutent"),
      bound<::setutent, Logins::begin>("setutent"),
      bound<::endutent, Logins::finish>("endutent"),
      bound<::getutxent, PosixLogins::step>("getutxent"),
      bound<::setutxent, PosixLogins::begin>("setutxent"),
      bound<::endutxent, PosixLogins::finish>("endutxent"),
      bound<::getpass, own_getpass>("getpass"),
  };
}

}  // namespace

std::span<const Binding> databases_bindings() {
  using L = Lookups;
  using Users = Walk<::getpwent_r, ::setpwent, ::endpwent, &Lookups::next_user>;
  using Groups = Walk<::getgrent_r, ::setgrent, ::endgrent, &Lookups::next_group>;
  using Shadows = Walk<::getspent_r, ::setspent, ::endspent, &Lookups::next_shadow>;
  using Hosts = Walk<::gethostent_r, ::sethostent, ::endhostent, &Lookups::next_host>;
  using Nets = Walk<::getnetent_r, ::setnetent, ::endnetent, &Lookups::next_net>;
  using Services = Walk<::getservent_r, ::setservent, ::endservent, &Lookups::next_service>;
  using Protocols = Walk<::getprotoent_r, ::setprotoent, ::endprotoent, &Lookups::next_protocol>;
  using Rpcs = Walk<::getrpcent_r, ::setrpcent, ::endrpcent, &Lookups::next_rpc>;
  static const std::vector<Binding> table = [] {
    std::vector<Binding> all{
        database<::getpwnam, ::getpwnam_r, &L::user_by_name>("getpwnam"),
        database<::getpwuid, ::getpwuid_r, &L::user_by_id>("getpwuid"),
        bound<::getpwent, Users::next>("getpwent"),
        bound<::setpwent, Users::begin>("setpwent"),
        bound<::endpwent, Users::finish>("endpwent"),
        bound<::getpwent_r, Users::next_into>("getpwent_r"),
        database<::fgetpwent, ::fgetpwent_r, &L::user_of_file>("fgetpwent"),
        database<::getgrnam, ::getgrnam_r, &L::group_by_name>("getgrnam"),
        database<::getgrgid, ::getgrgid_r, &L::group_by_id>("getgrgid"),
        bound<::getgrent, Groups::next>("getgrent"),
        bound<::setgrent, Groups::begin>("setgrent"),
        bound<::endgrent, Groups::finish>("endgrent"),
        bound<::getgrent_r, Groups::next_into>("getgrent_r"),
        database<::fgetgrent, ::fgetgrent_r, &L::group_of_file>("fgetgrent"),
        database<::getspnam, ::getspnam_r, &L::shadow_by_name>("getspnam"),
        bound<::getspent, Shadows::next>("getspent"),
        bound<::setspent, Shadows::begin>("setspent"),
        bound<::endspent, Shadows::finish>("endspent"),
        bound<::getspent_r, Shadows::next_into>("getspent_r"),
        database<::fgetspent, ::fgetspent_r, &L::shadow_of_file>("fgetspent"),
        database<::gethostbyname, ::gethostbyname_r, &L::host_by_name>("gethostbyname"),
        database<::gethostbyname2, ::gethostbyname2_r, &L::host_by_name2>("gethostbyname2"),
        database<::gethostbyaddr, ::gethostbyaddr_r, &L::host_by_address>("gethostbyaddr"),
        bound<::gethostent, Hosts::next>("gethostent"),
        bound<::sethostent, Hosts::begin_open>("sethostent"),
        bound<::endhostent, Hosts::finish>("endhostent"),
        database<::getnetbyname, ::getnetbyname_r, &L::net_by_name>("getnetbyname"),
        database<::getnetbyaddr, ::getnetbyaddr_r, &L::net_by_address>("getnetbyaddr"),
        bound<::getnetent, Nets::next>("getnetent"),
        bound<::setnetent, Nets::begin_open>("setnetent"),
        bound<::endnetent, Nets::finish>("endnetent"),
        database<::getservbyname, ::getservbyname_r, &L::service_by_name>("getservbyname"),
        database<::getservbyport, ::getservbyport_r, &L::service_by_port>("getservbyport"),
        bound<::getservent, Services::next>("getservent"),
        bound<::setservent, Services::begin_open>("setservent"),
        bound<::endservent, Services::finish>("endservent"),
        database<::getprotobyname, ::getprotobyname_r, &L::protocol_by_name>("getprotobyname"),
        database<::getprotobynumber, ::getprotobynumber_r, &L::protocol_by_number>("getprotobynumber"),
        bound<::getprotoent, Protocols::next>("getprotoent"),
        bound<::setprotoent, Protocols::begin_open>("setprotoent"),
        bound<::endprotoent, Protocols::finish>("endprotoent"),
        database<::getrpcbyname, ::getrpcbyname_r, &L::rpc_by_name>("getrpcbyname"),
        database<::getrpcbynumber, ::getrpcbynumber_r, &L::rpc_by_number>("getrpcbynumber"),
        bound<::getrpcent, Rpcs::next>("getrpcent"),
        bound<::setrpcent, Rpcs::begin_open>("setrpcent"),
        bound<::endrpcent, Rpcs::finish>("endrpcent"),
        bound<::getmntent, own_getmntent>("getmntent"),
    };
    const std::vector<Binding> lists = list_rows();
    all.insert(all.end(), lists.begin(), lists.end());
    return all;
  }();
  return table;
}

// ---------------------------------------------------------------- multibyte conversions

struct Conversions {
  std::mbstate_t multibyte{};  ///< mblen, mbtowc, wctomb
  std::mbstate_t mbrlen{}, mbrtowc{}, wcrtomb{}, mbsrtowcs{}, wcsrtombs{}, mbsnrtowcs{}, wcsnrtombs{};
  std::mbstate_t mbrtoc16{}, c16rtomb{}, mbrtoc32{}, c32rtomb{};
};

namespace {

Conversions& conversions_of(LibcState& state) { return shared_part(shared_part(state.buffers).conversions); }

// No locale of glibc has a conversion state that outlives a character, so forgetting the state is all that a null
// string asks for.
int forget(std::mbstate_t& state) {
  state = {};
  return 0;
}

int own_mblen(LibcState& state, const char* text, std::size_t bytes) {
  if (text == nullptr) return forget(conversions_of(state).multibyte);
  std::mbstate_t fresh{};  // each call stands for itself, as in libc
  const auto result = static_cast<std::ptrdiff_t>(::mbrtowc(nullptr, text, bytes, &fresh));
  return result < 0 ? -1 : static_cast<int>(result);
}

int own_mbtowc(LibcState& state, wchar_t* character, const char* text, std::size_t bytes) {
  std::mbstate_t& own = conversions_of(state).multibyte;
  if (text == nullptr) return forget(own);
  const auto result = static_cast<std::ptrdiff_t>(::mbrtowc(character, text, bytes, &own));
  if (result < 0) forget(own);
  return result < 0 ? -1 : static_cast<int>(result);
}

int own_wctomb(LibcState& state, char* text, wchar_t character) {
  std::mbstate_t& own = conversions_of(state).multibyte;
  return text == nullptr ? forget(own) : static_cast<int>(::wcrtomb(text, character, &own));
}

int own_wctomb_chk(LibcState& state, char* text, wchar_t character, std::size_t bytes) {
  std::mbstate_t& own = conversions_of(state).multibyte;
  return text == nullptr ? forget(own) : static_cast<int>(__wcrtomb_chk(text, character, &own, bytes));
}

/// What a program gets for `native`, a function with a conversion state among
/// its arguments: null means `own`.
template <auto native, auto own, class Type = decltype(plain(native))>
struct Conversion;
template <auto native, auto own, class Result, class... Args>
struct Conversion<native, own, Function<Result, Args...>> {
  static Result convert(LibcState& state, Args... args) {
    const auto given_or_own = [&state](auto argument) {
      if constexpr (std::is_same_v<decltype(argument), std::mbstate_t*>) {
        return argument != nullptr ? argument : &(conversions_of(state).*own);
      } else {
        return argument;
      }
    };
    return native(given_or_own(args)...);
  }
};
template <auto native, auto own>
Binding conversion(std::string_view name) noexcept {
  return bound<native, Conversion<native, own>::convert>(name);
}

}  // namespace

std::span<const Binding> conversions_bindings() {
  using C = Conversions;
  static const std::array table{
      bound<::mblen, own_mblen>("mblen"),
      bound<::mbtowc, own_mbtowc>("mbtowc"),
      bound<::wctomb, own_wctomb>("wctomb"),
      bound<__wctomb_chk, own_wctomb_chk>("__wctomb_chk"),
      conversion<::mbrlen, &C::mbrlen>("mbrlen"),
      conversion<::mbrlen, &C::mbrlen>("__mbrlen"),
      conversion<::mbrtowc, &C::mbrtowc>("mbrtowc"),
      conversion<::wcrtomb, &C::wcrtomb>("wcrtomb"),
      conversion<::__wcrtomb_chk, &C::wcrtomb>("__wcrtomb_chk"),
      conversion<::mbsrtowcs, &C::mbsrtowcs>("mbsrtowcs"),
      conversion<::__mbsrtowcs_chk, &C::mbsrtowcs>("__mbsrtowcs_chk"),
      conversion<::wcsrtombs, &C::wcsrtombs>("wcsrtombs"),
      conversion<::__wcsrtombs_chk, &C::wcsrtombs>("__wcsrtombs_chk"),
      conversion<::mbsnrtowcs, &C::mbsnrtowcs>("mbsnrtowcs"),
      conversion<::__mbsnrtowcs_chk, &C::mbsnrtowcs>("__mbsnrtowcs_chk"),
      conversion<::wcsnrtombs, &C::wcsnrtombs>("wcsnrtombs"),
      conversion<::__wcsnrtombs_chk, &C::wcsnrtombs>("__wcsnrtombs_chk"),
      conversion<::mbrtoc16, &C::mbrtoc16>("mbrtoc16"),
      conversion<::c16rtomb, &C::c16rtomb>("c16rtomb"),
      conversion<::mbrtoc32, &C::mbrtoc32>("mbrtoc32"),
      conversion<::c32rtomb, &C::c32rtomb>("c32rtomb"),
  };
  return table;
}

}  // namespace aplib::loader::libc
