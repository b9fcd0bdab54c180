// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"

namespace aplib::loader::libc {

namespace {

/// Further names that libc has for one function.
struct Alias {
  std::string_view name;
  std::string_view of;
};
constexpr Alias aliases[] = {
    {"_IO_fclose", "fclose"},
    {"_IO_fdopen", "fdopen"},
    {"_IO_fflush", "fflush"},
    {"_IO_fgets", "fgets"},
    {"_IO_flockfile", "flockfile"},
    {"_IO_fopen", "fopen"},
    {"_IO_fread", "fread"},
    {"_IO_ftrylockfile", "ftrylockfile"},
    {"_IO_funlockfile", "funlockfile"},
    {"_IO_gets", "gets"},
    {"_IO_popen", "popen"},
    {"__backtrace_symbols", "backtrace_symbols"},
    {"__backtrace_symbols_fd", "backtrace_symbols_fd"},
    {"__bsd_getpgrp", "getpgid"},
    {"__clock_gettime", "clock_gettime"},
    {"__fstat64", "fstat64"},
    {"__getrlimit", "getrlimit"},
    {"__gettimeofday", "gettimeofday"},
    {"__libc_calloc", "calloc"},
    {"__libc_fcntl64", "fcntl64"},
    {"__libc_free", "free"},
    {"__libc_malloc", "malloc"},
    {"__libc_memalign", "memalign"},
    {"__libc_msgrcv", "msgrcv"},
    {"__libc_msgsnd", "msgsnd"},
    {"__libc_pvalloc", "pvalloc"},
    {"__libc_pwrite", "pwrite"},
    {"__libc_realloc", "realloc"},
    {"__libc_reallocarray", "reallocarray"},
    {"__libc_secure_getenv", "secure_getenv"},
    {"__libc_sigaction", "sigaction"},
    {"__libc_system", "system"},
    {"__libc_valloc", "valloc"},
    {"__libc_pread", "pread"},
    {"__lseek", "lseek"},
    {"__pread64", "pread64"},
    {"__mbrtowc", "mbrtowc"},
    {"__mmap", "mmap"},
    {"__munmap", "munmap"},
    {"__pthread_mutex_lock", "pthread_mutex_lock"},
    {"__pthread_mutex_trylock", "pthread_mutex_trylock"},
    {"__pthread_mutex_unlock", "pthread_mutex_unlock"},
    {"__pthread_rwlock_rdlock", "pthread_rwlock_rdlock"},
    {"__pthread_rwlock_trywrlock", "pthread_rwlock_trywrlock"},
    {"__pthread_rwlock_unlock", "pthread_rwlock_unlock"},
    {"__pthread_rwlock_wrlock", "pthread_rwlock_wrlock"},
    {"__pwrite64", "pwrite64"},
    {"__recv", "recv"},
    {"__secure_getenv", "secure_getenv"},
    {"__send", "send"},
    {"__sigsuspend", "sigsuspend"},
    {"__sigtimedwait", "sigtimedwait"},
    {"__socket", "socket"},
    {"__vfscanf", "vfscanf"},
    {"llseek", "lseek64"},
};

std::vector<Binding> join_tables() {
  std::vector<Binding> all;
  for (const std::span<const Binding> table : {
           libc::getopt_bindings(),         libc::argp_bindings(),
           libc::random_bindings(),         libc::environ_bindings(),
           libc::static_buffers_bindings(), libc::databases_bindings(),
           libc::conversions_bindings(),    libc::gamma_bindings(),
           libc::locale_bindings(),         libc::time_zone_bindings(),
           libc::files_bindings(),          libc::process_bindings(),
           libc::children_bindings(),       libc::stdio_bindings(),
           libc::errors_bindings(),         libc::record_locks_bindings(),
           libc::heap_bindings(),           libc::exit_bindings(),
           libc::signals_bindings(),        libc::signal_masks_bindings(),
           libc::threads_bindings(),        libc::keys_bindings(),
           libc::sleep_bindings(),          libc::cpu_time_bindings(),
           libc::opened_bindings(),         libc::names_bindings(),
           libc::limits_bindings(),         libc::dl_bindings(),
           libc::start_bindings(),          libc::identity_bindings(),
           libc::blocking_bindings(),       libc::synchronization_bindings(),
           libc::timers_bindings(),         libc::numbered_calls_bindings(),
           libc::mappings_bindings(),
       }) {
    all.insert(all.end(), table.begin(), table.end());
  }
  const std::size_t named = all.size();
  for (const Alias& alias : aliases) {
    const auto found = std::find_if(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(named),
                                    [&alias](const Binding& each) { return each.name == alias.of; });
    if (found == all.begin() + static_cast<std::ptrdiff_t>(named)) continue;
    Binding further = *found;
    further.name = alias.name;
    all.push_back(further);
  }
  std::ranges::sort(all, {}, &Binding::name);
  return all;
}

}  // namespace

std::span<const Binding> all_bindings() {
  static const std::vector<Binding> joined = join_tables();  // constant: no state
  return joined;
}

const Binding* find_binding(std::string_view name) {
  const std::span<const Binding> all = all_bindings();
  const auto found = std::ranges::lower_bound(all, name, {}, &Binding::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

LibcState::LibcState() noexcept
    : number([] {
        static std::atomic<std::uint32_t> last{0};
        return ++last;
      }()) {}

void start_libc(Instance& instance) {
  libc::start_environment(instance);
  libc::start_program_name(instance);
  libc::start_locale(instance);
  libc::start_time_zone(instance);
  libc::start_stdio(instance);
}

}  // namespace aplib::loader::libc
