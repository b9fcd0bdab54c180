// SPDX-License-Identifier: MIT
// SpinLock: for a few instructions that hardly anybody else wants at the same time. Giving it back is a plain
// store: who has just written what another core reads does not wait for that line.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "arch/cpu.hpp"

namespace aplib {

/// Between two looks at what another thread is about to change: pause(). It gives the core away now and then, for
/// the other thread may have lost its own and wait for ours.
class SpinWait {
 public:
  void pause() noexcept {
    if (++spins_ % spins_per_yield == 0) {
      std::this_thread::yield();
    } else {
      cpu_relax();
    }
  }

 private:
  static constexpr std::uint32_t spins_per_yield = 128;  // 2 to 5 us
  std::uint32_t spins_ = 0;
};

/// Meets the standard's Lockable. Thread safety: any thread.
class SpinLock {
 public:
  [[nodiscard]] bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
  }
  void lock() noexcept {
    for (SpinWait spin; !try_lock();) spin.pause();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace aplib
