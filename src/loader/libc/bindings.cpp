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

std::vector<Binding> join_tables() {
  std::vector<Binding> all;
  for (const std::span<const Binding> table : {
           libc::getopt_bindings(),
           libc::random_bindings(),
           libc::environ_bindings(),
           libc::static_buffers_bindings(),
           libc::databases_bindings(),
           libc::conversions_bindings(),
           libc::gamma_bindings(),
           libc::locale_bindings(),
           libc::time_zone_bindings(),
           libc::files_bindings(),
           libc::process_bindings(),
           libc::children_bindings(),
           libc::stdio_bindings(),
           libc::errors_bindings(),
           libc::record_locks_bindings(),
           libc::heap_bindings(),
           libc::exit_bindings(),
           libc::signals_bindings(),
           libc::signal_masks_bindings(),
           libc::threads_bindings(),
           libc::keys_bindings(),
           libc::sleep_bindings(),
           libc::cpu_time_bindings(),
           libc::opened_bindings(),
           libc::names_bindings(),
           libc::limits_bindings(),
           libc::dl_bindings(),
           libc::start_bindings(),
           libc::identity_bindings(),
           libc::blocking_bindings(),
           libc::synchronization_bindings(),
           libc::timers_bindings(),
       }) {
    all.insert(all.end(), table.begin(), table.end());
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
