// SPDX-License-Identifier: MIT
// How a function that is bound into programs finds the state it works on.
//
//   char* own_getenv(LibcState& state, const char* name) { ... }
//
//   bound<::getenv, own_getenv>("getenv")     // rows of a table
//   variable<&LibcState::optind>("optind")
//
// Where a function needs more than that, it takes the return address itself. Never call one bound function from
// another: the address would be ours.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <memory>
#include <type_traits>
#include <utility>

#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/state.hpp"

namespace aplib::loader::libc {

/// The state of the instance whose code calls, or null: no instance.
inline LibcState* state_of(const void* caller) noexcept {
  Instance* instance = calling(caller);
  return instance == nullptr ? nullptr : &instance->libc();
}

/// What a function of libc does that fails. A task may have been switched meanwhile, and its thread with it, so the
/// place of errno must not be known from before.
[[gnu::noinline]] inline int failed(int error) noexcept {
  errno = error;
  return -1;
}
[[gnu::noinline]] inline int errno_now() noexcept { return errno; }

/// While it lives, the runtime does for others what the program's errno does not tell of.
class ErrnoKept {
 public:
  ErrnoKept() noexcept : value_(errno_now()) {}
  ~ErrnoKept() { failed(value_); }
  ErrnoKept(const ErrnoKept&) = delete;
  ErrnoKept& operator=(const ErrnoKept&) = delete;

 private:
  const int value_;
};

/// The same type whether or not libc declares the function nothrow.
template <class Result, class... Args>
using Function = Result (*)(Args...);
template <class Result, class... Args>
constexpr Function<Result, Args...> plain(Function<Result, Args...> function) noexcept {
  return function;
}

/// What a program gets for libc's function `native`: own(state, arguments...), or own(instance, arguments...), of the
/// instance that calls; native(arguments...) where none does.
template <auto native, auto own, class Type = decltype(plain(native))>
struct Bound;
template <auto native, auto own, class Result, class... Args>
struct Bound<native, own, Function<Result, Args...>> {
  static Result call(Args... args) {
    Instance* const instance = calling(__builtin_return_address(0));
    if (instance == nullptr) return native(args...);
    if constexpr (requires { own(*instance, args...); }) {
      return own(*instance, args...);
    } else {
      return own(instance->libc(), args...);
    }
  }
};
template <auto native, auto own>
Binding bound(std::string_view name) noexcept {
  return Binding::of(name, &Bound<native, own>::call);
}

/// A row for a Variable: a member of LibcState, or what find(instance) gives.
template <auto find>
Binding variable(std::string_view name) noexcept {
  const auto of = [](Instance & instance) -> auto& {
    if constexpr (std::is_member_pointer_v<decltype(find)>) {
      return instance.libc().*find;
    } else {
      return find(instance);
    }
  };
  using Value = std::remove_reference_t<decltype(*of(std::declval<Instance&>()))>;
  return Binding::datum(
      name, [](Instance& instance) -> void* { return decltype(of){}(instance).place(); },
      [](Instance& instance, void* room) { decltype(of){}(instance).move_to(room); }, sizeof(Value));
}

/// A function that has `before` and a format, as printf and scanf have, and its form that takes a list:
/// run(caller, before..., format, list).
template <auto run, class Character, class... Before>
struct Formatted {
  using Result = decltype(run(nullptr, Before{}..., nullptr, std::declval<va_list>()));

  static Result with_list(Before... before, const Character* format, va_list arguments) {
    return run(__builtin_return_address(0), before..., format, arguments);
  }
  static Result with_dots(Before... before, const Character* format, ...) {
    const void* const caller = __builtin_return_address(0);
    va_list arguments;
    va_start(arguments, format);
    if constexpr (std::is_void_v<Result>) {
      run(caller, before..., format, arguments);
      va_end(arguments);
    } else {
      const Result result = run(caller, before..., format, arguments);
      va_end(arguments);
      return result;
    }
  }
};

/// lazy.get() for parts that threads of one program may ask for at the same time: one of them makes it. May throw
/// std::bad_alloc.
template <class T>
T& shared_part(Lazy<T>& lazy) {
  std::atomic_ref<T*> part(lazy.part);
  if (T* made = part.load(std::memory_order_acquire)) return *made;
  auto fresh = std::make_unique<T>();
  using Destroy = void (*)(T*) noexcept;
  const Destroy destroy = [](T* dead) noexcept { delete dead; };
  std::atomic_ref<Destroy>(lazy.destroy).store(destroy, std::memory_order_relaxed);
  T* other = nullptr;
  if (!part.compare_exchange_strong(other, fresh.get(), std::memory_order_acq_rel)) return *other;
  return *fresh.release();
}

}  // namespace aplib::loader::libc
