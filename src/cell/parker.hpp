// SPDX-License-Identifier: MIT
// Parker: how a processor falls asleep and is woken. One sleeper (the owner), any number of wakers.
//
//   owner:  parker.announce(); if (there is work) parker.cancel(); else parker.sleep(timeout);
//   waker:  publish the work; parker.wake_if_asleep();
//
// Lost wake-ups cannot happen: the owner stores asleep, passes a fence that every thread takes part in, and looks
// for work again. The waker publishes work, then loads the state. Either the owner sees the work, or the waker sees
// asleep:
//
//   owner:  state = asleep    FENCE (heavy)   look for work
//   waker:  publish work      fence (light)   look at state
//
// The heavy side pays for both (membarrier), so that a send costs its processor no fence. Where the kernel has no
// membarrier the waker pays with a real fence; Os::light_fence decides by a flag that never changes after start.
//
// A processor may also sleep elsewhere than here, where other events wake it, too (Network): announce(true),
// sleep there, cancel(). Its waker then raises the alarm of the Os.
//
// Invariants: (1) only the owner moves awake -> asleep; (2) asleep -> awake is an exchange, so exactly one side
// does it.
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
  bool has_process_barrier = os::process_barrier_register();

  void heavy_fence() const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // own store of asleep before own look for work
    if (has_process_barrier) os::process_barrier();
  }
  void light_fence() const noexcept {
    if (has_process_barrier) {
      std::atomic_signal_fence(
          std::memory_order_seq_cst);  // compiler only: the owner's membarrier orders the processor
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);  // own publication before own look at state
    }
  }
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
            std::optional<std::chrono::nanoseconds> timeout) const noexcept {
    os::futex_wait(word, expected, timeout);
  }
  void wake(std::atomic<std::uint32_t>& word) const noexcept { os::futex_wake(word); }

  /// Wakes who sleeps elsewhere. Set before any processor runs. Async-signal-safe.
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

  explicit Parker(const Os& os) : os_(os) {}

  /// Owner: says that it is about to sleep. After this it must look for work once more.
  void announce(bool elsewhere = false) noexcept {
    state_.store(elsewhere ? asleep_elsewhere : asleep, std::memory_order_relaxed);  // ordered by the heavy fence
    os_.heavy_fence();
  }

  /// Owner: found work after announce(). Returns false when a waker was faster (harmless).
  bool cancel() noexcept { return state_.exchange(awake, std::memory_order_acquire) != awake; }

  /// Owner: sleeps until woken or the timeout passed; awake afterwards. Returns true when a waker woke it.
  bool sleep(std::optional<std::chrono::nanoseconds> timeout) noexcept {
    if (timeout) {
      if (state_.load(std::memory_order_acquire) == asleep) os_.wait(state_, asleep, timeout);
      return !cancel();
    }
    while (state_.load(std::memory_order_acquire) == asleep)
      os_.wait(state_, asleep, std::nullopt);  // acquire: the waker's work
    return true;
  }

  /// Waker: call after the work is published. Cheap when the owner is awake: one load of a line that rarely
  /// changes. Returns true when this call woke the owner. Async-signal-safe.
  bool wake_if_asleep() noexcept {
    os_.light_fence();
    if (state_.load(std::memory_order_relaxed) == awake) [[likely]]
      return false;  // the exchange below decides
    const std::uint32_t was =
        state_.exchange(awake, std::memory_order_release);  // release: pairs with sleep(), cancel()
    if (was == awake) return false;
    if constexpr (requires { os_.alarm(); }) {  // a model may do without
      if (was == asleep_elsewhere) {
        os_.alarm();
        return true;
      }
    }
    os_.wake(state_);
    return true;
  }

  /// Anyone: is the owner asleep with nobody having woken it? A hint unless all processors are known to be asleep.
  [[nodiscard]] bool is_asleep() const noexcept { return state_.load(std::memory_order_acquire) != awake; }

 private:
  const Os& os_;
  alignas(cache_pair_bytes) Atom<std::uint32_t> state_{awake};
};

/// The owner's way to sleep: announces it, has `look` look for work once more, and sleeps unless that found some.
/// True: slept.
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
