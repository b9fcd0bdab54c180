// SPDX-License-Identifier: MIT
// Parker: puts a processor to sleep and wakes it. There is one sleeper, the owner, and any number of wakers.
//
//   owner:  parker.announce(); if (there is work) parker.cancel(); else parker.sleep(timeout);
//   waker:  publish the work; parker.wake_if_asleep();
//
// No wake-up is lost. The owner stores asleep, passes a fence, and looks for work again. The waker publishes work,
// passes a fence, and loads the state. So either the owner sees the work, or the waker sees asleep:
//
//   owner:  state = asleep    fence   look for work
//   waker:  publish work      fence   look at state
//
// The owner could pay for both by membarrier, and a send would save some 5 ns. But membarrier interrupts every core
// that runs a thread of the process, under one lock: where many threads wait often, that was half of all time.
//
// A processor may also sleep elsewhere, where other events wake it, too (Network): announce(true), sleep there,
// cancel(). Its waker then raises the alarm of the Os.
//
// Invariants: (1) only the owner changes awake to asleep; (2) an exchange changes asleep to awake, so exactly one side
// does it.
//
// Wakers leave the time at which they began, for WakeCost.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "arch/cpu.hpp"
#include "base/os/thread.hpp"

namespace aplib {

/// The real operating system behind Parker. Tests put a model in its place.
struct ParkerOs {
  // Own store of asleep before own look for work, and own publication before own look at the state.
  void sleeper_fence() const noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
  void waker_fence() const noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
            std::optional<std::chrono::nanoseconds> timeout) const noexcept {
    group.wait(word, expected, timeout);
  }
  void wake(std::atomic<std::uint32_t>& word) const noexcept { os::futex_wake(word); }
  [[nodiscard]] std::chrono::steady_clock::time_point now() const noexcept { return std::chrono::steady_clock::now(); }

  mutable os::FutexGroup group;

  /// Wakes a processor that sleeps elsewhere. Set before any processor runs. Async-signal-safe.
  void (*raise_alarm)(void*) = nullptr;
  void* alarm_context = nullptr;
  void alarm() const noexcept { raise_alarm(alarm_context); }
};

template <template <class> class Atom = std::atomic, class Os = ParkerOs>
class Parker {
 public:
  static constexpr std::uint32_t awake = 0;
  static constexpr std::uint32_t asleep = 1;
  static constexpr std::uint32_t asleep_elsewhere = 2;

  using Time = std::chrono::steady_clock::time_point;

  explicit Parker(const Os& os) : os_(os) {}

  /// Owner: announces that it is about to sleep. It must look for work once more afterwards.
  void announce(bool elsewhere = false) noexcept {
    waker_began_.store(Time{}, std::memory_order_relaxed);                           // a hint
    state_.store(elsewhere ? asleep_elsewhere : asleep, std::memory_order_relaxed);  // ordered by the fence
    os_.sleeper_fence();
  }

  /// Owner: has found work after announce(). False: a waker was faster, which does no harm.
  bool cancel() noexcept { return state_.exchange(awake, std::memory_order_acquire) != awake; }

  /// Owner: sleeps until it is woken or the timeout has passed; it is awake afterwards. True: a waker woke it.
  bool sleep(std::optional<std::chrono::nanoseconds> timeout) noexcept {
    if (timeout) {
      if (state_.load(std::memory_order_acquire) == asleep) os_.wait(state_, asleep, timeout);
      return !cancel();
    }
    while (state_.load(std::memory_order_acquire) == asleep)
      os_.wait(state_, asleep, std::nullopt);  // acquire: the waker's work
    return true;
  }

  /// Waker: wakes the owner if it sleeps. True: this call woke it. While the owner is awake the call is one load of a
  /// line that rarely changes. REQUIRES: the work is published. Async-signal-safe.
  bool wake_if_asleep() noexcept {
    os_.waker_fence();
    if (state_.load(std::memory_order_relaxed) == awake) [[likely]]  // the exchange decides
      return false;
    return wake_alone();
  }
  /// The same, where `wake` wakes who sleeps on the word: many together, perhaps. `began`: when the waker did, if this
  /// is not the first one that it wakes.
  template <class Wake>
  bool wake_if_asleep(const Wake& wake, Time began = {}) noexcept {
    os_.waker_fence();
    if (state_.load(std::memory_order_relaxed) == awake) [[likely]]  // the exchange decides
      return false;
    return wake_by(wake, began);
  }

  /// Owner: when the one that has woken it began; zero: nobody has. A hint.
  [[nodiscard]] Time waker_began() const noexcept { return waker_began_.load(std::memory_order_relaxed); }

  /// Anyone: the owner sleeps, and nobody has woken it. A hint, unless all processors are known to sleep.
  [[nodiscard]] bool is_asleep() const noexcept { return state_.load(std::memory_order_acquire) != awake; }

 private:
  // Out of line: a send needs no registers kept for it.
  [[gnu::noinline]] bool wake_alone() noexcept {
    return wake_by([this](Atom<std::uint32_t>& state) { os_.wake(state); }, Time{});
  }

  template <class Wake>
  bool wake_by(const Wake& wake, Time began) noexcept {
    if constexpr (requires { os_.now(); }) {  // a model may do without
      if (began == Time{}) began = os_.now();
      waker_began_.store(began, std::memory_order_relaxed);  // a hint
    }
    const std::uint32_t was =
        state_.exchange(awake, std::memory_order_release);  // release: pairs with sleep(), cancel()
    if (was == awake) return false;
    if constexpr (requires { os_.alarm(); }) {  // a model may do without
      if (was == asleep_elsewhere) {
        os_.alarm();
        return true;
      }
    }
    wake(state_);
    return true;
  }

  const Os& os_;
  std::atomic<Time> waker_began_{};
  alignas(cache_pair_bytes) Atom<std::uint32_t> state_{awake};
};

/// Sleeps as the owner must: announces it, calls `look` to look for work once more, and calls `sleep` if there is none.
/// True: it has slept.
template <class ParkerType, class Look, class Sleep>
bool sleep_unless(ParkerType& parker, bool elsewhere, const Look& look, const Sleep& sleep) {
  parker.announce(elsewhere);
  if (look()) {
    parker.cancel();
    return false;
  }
  sleep();
  return true;
}

}  // namespace aplib
