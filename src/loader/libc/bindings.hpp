// SPDX-License-Identifier: MIT
// Bindings: symbols of libc (and of libstdc++ and libdl) that instances get from us, because libc keeps state behind
// them. The loader looks here when an image of an instance refers to a symbol that no image of the instance defines,
// whatever version it asks for.
//
// All instances share a function, which finds its instance through calling(). A datum (optind, stdout, std::cout) is
// each instance's own. An executable has room for it, where its code looks for it (a COPY relocation): then it lies
// there, and nowhere else.
//
// Each file in src/loader/libc/ offers the tables of its concern (getopt, numbers, ...). bindings.cpp joins them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace aplib::loader {
class Instance;
}  // namespace aplib::loader

namespace aplib::loader::libc {

struct Binding {
  enum class Kind : unsigned char {
    function,  ///< One for all instances.
    datum,     ///< Each instance's own, if the program refers to the name.
  };
  std::string_view name;
  Kind kind = Kind::function;
  const void* function = nullptr;  ///< Function: its address.
  /// Datum: called while the instance is made, for each reference; gives the same place each time. Runs no code
  /// of the program.
  void* (*place)(Instance&) = nullptr;
  /// Datum: the program has room for it. Called before any place is asked for.
  void (*give_room)(Instance&, void* room) = nullptr;
  std::size_t bytes = 0;  ///< Datum: of the room.
  bool of_heap = false;   ///< Bound only into programs whose heap is in the slot or counted: Program::binds().

  template <class R, class... Args>
  static Binding of(std::string_view name, R (*function)(Args...)) noexcept {
    return {.name = name, .function = reinterpret_cast<const void*>(function)};
  }
  template <class R, class... Args>
  static Binding of(std::string_view name, R (*function)(Args..., ...)) noexcept {
    return {.name = name, .function = reinterpret_cast<const void*>(function)};
  }
  static constexpr Binding datum(std::string_view name, void* (*place)(Instance&),
                                 void (*give_room)(Instance&, void* room), std::size_t bytes) noexcept {
    return {.name = name, .kind = Kind::datum, .place = place, .give_room = give_room, .bytes = bytes};
  }
};

/// The binding of `name`, or null: libc's own. Call from: any thread. No two bindings have one name (a test checks).
/// The first call of either may throw std::bad_alloc.
const Binding* find_binding(std::string_view name);
/// All of them, sorted by name.
std::span<const Binding> all_bindings();

// The tables, one for each concern.
std::span<const Binding> getopt_bindings();
std::span<const Binding> argp_bindings();
std::span<const Binding> random_bindings();
std::span<const Binding> environ_bindings();
std::span<const Binding> static_buffers_bindings();
std::span<const Binding> databases_bindings();
std::span<const Binding> conversions_bindings();
std::span<const Binding> gamma_bindings();
std::span<const Binding> locale_bindings();
std::span<const Binding> time_zone_bindings();
std::span<const Binding> files_bindings();
std::span<const Binding> process_bindings();
std::span<const Binding> children_bindings();
std::span<const Binding> stdio_bindings();
std::span<const Binding> errors_bindings();
std::span<const Binding> record_locks_bindings();
std::span<const Binding> heap_bindings();
std::span<const Binding> mappings_bindings();
std::span<const Binding> exit_bindings();
std::span<const Binding> signals_bindings();
std::span<const Binding> signal_masks_bindings();
std::span<const Binding> threads_bindings();
std::span<const Binding> keys_bindings();
std::span<const Binding> sleep_bindings();
std::span<const Binding> cpu_time_bindings();
std::span<const Binding> opened_bindings();
std::span<const Binding> names_bindings();
std::span<const Binding> limits_bindings();
std::span<const Binding> dl_bindings();
std::span<const Binding> blocking_bindings();
std::span<const Binding> synchronization_bindings();
std::span<const Binding> timers_bindings();
std::span<const Binding> start_bindings();
std::span<const Binding> identity_bindings();
std::span<const Binding> numbered_calls_bindings();

}  // namespace aplib::loader::libc
