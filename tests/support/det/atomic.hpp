// SPDX-License-Identifier: MIT
// DetAtomic: stands in for std::atomic in templates of the form `template <template <class> class Atom =
// std::atomic>`. Inside a run of the deterministic scheduler, every operation is a scheduling point, and loads return
// any value that their order permits. Outside it is a plain variable. It is as large as T, so that layouts do not
// change.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "scheduler.hpp"

namespace aplib::det {

template <class T>
class DetAtomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;

  DetAtomic() noexcept : value_{} { announce(); }
  DetAtomic(T value) noexcept : value_(value) { announce(); }  // implicit, as std::atomic's
  DetAtomic(const DetAtomic&) = delete;
  DetAtomic& operator=(const DetAtomic&) = delete;
  ~DetAtomic() { announce(); }

  T operator=(T value) noexcept {
    store(value);
    return value;
  }
  operator T() const noexcept { return load(); }
  [[nodiscard]] bool is_lock_free() const noexcept { return true; }

  T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
    Scheduler* run = Scheduler::current();
    return run != nullptr ? unpack(run->load(this, pack(value_), order)) : value_;
  }

  void store(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    if (Scheduler* run = Scheduler::current(); run != nullptr) {
      run->store(this, pack(value_), pack(value), order);
    }
    value_ = value;
  }

  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return update(order, [value](T) { return value; });
  }

  bool compare_exchange_strong(T& expected, T desired, std::memory_order success, std::memory_order failure) noexcept {
    return compare_exchange(expected, desired, success, failure, false);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return compare_exchange(expected, desired, order, of_failure(order), false);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure) noexcept {
    return compare_exchange(expected, desired, success, failure, true);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return compare_exchange(expected, desired, order, of_failure(order), true);
  }

  T fetch_add(auto amount, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return update(order, [amount](T old) { return static_cast<T>(old + amount); });
  }
  T fetch_sub(auto amount, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return update(order, [amount](T old) { return static_cast<T>(old - amount); });
  }
  T fetch_or(T bits, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return update(order, [bits](T old) { return static_cast<T>(old | bits); });
  }
  T fetch_and(T bits, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return update(order, [bits](T old) { return static_cast<T>(old & bits); });
  }
  T fetch_xor(T bits, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return update(order, [bits](T old) { return static_cast<T>(old ^ bits); });
  }
  T operator++() noexcept { return static_cast<T>(fetch_add(1) + 1); }
  T operator++(int) noexcept { return fetch_add(1); }
  T operator--() noexcept { return static_cast<T>(fetch_sub(1) - 1); }
  T operator--(int) noexcept { return fetch_sub(1); }

 private:
  static std::uint64_t pack(T value) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
  }
  static T unpack(std::uint64_t bits) noexcept {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  static constexpr std::memory_order of_failure(std::memory_order order) noexcept {
    if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
    return order == std::memory_order_release ? std::memory_order_relaxed : order;
  }
  void announce() noexcept {
    if (Scheduler* run = Scheduler::current(); run != nullptr) run->created(this);
  }

  template <class Change>
  T update(std::memory_order order, Change change) noexcept {
    const T before = value_;
    if (Scheduler* run = Scheduler::current(); run != nullptr) {
      const T old = unpack(
          run->update(this, pack(before), order, [&](std::uint64_t bits) { return pack(change(unpack(bits))); }));
      value_ = change(old);
      return old;
    }
    value_ = change(before);
    return before;
  }

  bool compare_exchange(T& expected, T desired, std::memory_order success, std::memory_order failure,
                        bool weak) noexcept {
    if (Scheduler* run = Scheduler::current(); run != nullptr) {
      std::uint64_t bits = pack(expected);
      const bool done = run->compare_exchange(this, pack(value_), bits, pack(desired), success, failure, weak);
      if (done) {
        value_ = desired;
      } else {
        expected = unpack(bits);
      }
      return done;
    }
    if (pack(value_) == pack(expected)) {
      value_ = desired;
      return true;
    }
    expected = value_;
    return false;
  }

  T value_;  // the newest
};

/// A plain variable for which races are detected.
template <class T>
class DetPlain {
 public:
  DetPlain() = default;
  explicit DetPlain(T value) : value_(value) {}

  [[nodiscard]] T read() const {
    if (Scheduler* run = Scheduler::current(); run != nullptr) run->plain_read(this);
    return value_;
  }
  void write(T value) {
    if (Scheduler* run = Scheduler::current(); run != nullptr) run->plain_write(this);
    value_ = value;
  }

 private:
  T value_{};
};

/// std::atomic_thread_fence.
inline void fence(std::memory_order order) {
  if (Scheduler* run = Scheduler::current(); run != nullptr) run->fence(order);
}

/// The Linux futex on a 32-bit atomic.
inline Scheduler::Wait futex_wait(const DetAtomic<std::uint32_t>& word, std::uint32_t expected,
                                  std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max()) {
  return Scheduler::current()->futex_wait(&word, 0, expected, timeout);
}
inline int futex_wake(const DetAtomic<std::uint32_t>& word, int count) {
  return Scheduler::current()->futex_wake(&word, count);
}

/// Lets others run; for spin loops.
inline void yield() {
  if (Scheduler* run = Scheduler::current(); run != nullptr) run->yield();
}

/// Fails the run when `truth` does not hold.
inline void check(bool truth, const char* text) {
  if (!truth) Scheduler::current()->fail(text);
}

}  // namespace aplib::det
