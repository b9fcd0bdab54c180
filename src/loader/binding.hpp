// SPDX-License-Identifier: MIT
// Bindings: symbols of libc (and of libstdc++ and libdl) that instances get from us instead, because libc keeps state behind them. The loader looks here when an image of an instance
// refers to a symbol that no image of the instance defines; whatever version it asks for.
//
// A function is one for all instances and finds its instance through calling(); a datum (optind, environ, stdout) is a place inside the instance's LibcState.
//
// Each file in src/loader/libc/ has one concern (getopt, random numbers, ...) and offers its table; bindings.cpp joins them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace aplib::loader {

class Instance;

struct Binding {
  enum class Kind : unsigned char {
    function,  ///< One for all instances.
    datum,     ///< A place in LibcState.
    made,      ///< A place that is made with the instance, if the program refers to the name.
  };
  std::string_view name;
  Kind kind = Kind::function;
  const void* function = nullptr;  ///< Function: its address.
  std::size_t offset = 0;          ///< Datum: where it is in LibcState.
  void* (*place)(Instance&) =
      nullptr;  ///< Made: called while the instance is made, for each reference; gives the same place each time. Runs no code of the program.
  bool of_heap = false;  ///< Bound only into programs whose heap is in the slot or counted: Program::binds().

  template <class R, class... Args>
  static Binding of(std::string_view name, R (*function)(Args...)) noexcept {
    return {name, Kind::function, reinterpret_cast<const void*>(function), 0, nullptr, false};
  }
  template <class R, class... Args>
  static Binding of(std::string_view name, R (*function)(Args..., ...)) noexcept {
    return {name, Kind::function, reinterpret_cast<const void*>(function), 0, nullptr, false};
  }
  static constexpr Binding datum(std::string_view name, std::size_t offset) noexcept {
    return {name, Kind::datum, nullptr, offset, nullptr, false};
  }
  static constexpr Binding made(std::string_view name, void* (*place)(Instance&)) noexcept {
    return {name, Kind::made, nullptr, 0, place, false};
  }
};

/// The binding of `name`, or null: libc's own. Call from: any thread. No two bindings have one name (a test checks).
const Binding* find_binding(std::string_view name) noexcept;
/// All of them, sorted by name.
std::span<const Binding> all_bindings() noexcept;

}  // namespace aplib::loader
