// SPDX-License-Identifier: MIT
// How a function that is bound into programs finds the state it works on.
//
//   char* own_getenv(const char* name) {
//     LibcState* state = state_of(__builtin_return_address(0));
//     if (state == nullptr) return ::getenv(name);   // called by no instance: libc's own
//     ...
//
// Take the return address in the bound function itself, and never call one bound function from another: the address
// would be ours.
#pragma once

#include <atomic>
#include <memory>

#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/state.hpp"

namespace aplib::loader::libc {

/// The state of the instance whose code calls, or null: no instance.
inline LibcState* state_of(const void* caller) noexcept {
  Instance* instance = calling(caller);
  return instance == nullptr ? nullptr : &instance->libc();
}

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
