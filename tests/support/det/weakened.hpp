// SPDX-License-Identifier: MIT
// Atomics with a fault: every release, or every acquire, is relaxed. If a structure's test passes with these, it does
// not test the structure.
#pragma once

#include "atomic.hpp"

namespace aplib::det {

template <class T>
class WithoutRelease : public DetAtomic<T> {
 public:
  using DetAtomic<T>::DetAtomic;
  void store(T value, std::memory_order) noexcept { DetAtomic<T>::store(value, std::memory_order_relaxed); }
  T exchange(T value, std::memory_order) noexcept { return DetAtomic<T>::exchange(value, std::memory_order_acquire); }
};

template <class T>
class WithoutAcquire : public DetAtomic<T> {
 public:
  using DetAtomic<T>::DetAtomic;
  T load(std::memory_order) const noexcept { return DetAtomic<T>::load(std::memory_order_relaxed); }
  T exchange(T value, std::memory_order) noexcept { return DetAtomic<T>::exchange(value, std::memory_order_release); }
};

}  // namespace aplib::det
