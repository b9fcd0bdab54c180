// SPDX-License-Identifier: MIT
// SpinLock: for a few instructions that hardly anybody else wants at the same time. Giving it back is a plain store: who has just written what another core reads does not wait for that line.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "arch/cpu.hpp"

namespace aplib {

/// Meets the standard's Lockable. Thread safety: any thread.
class SpinLock {
 public:
  [[nodiscard]] bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
  }
  void lock() noexcept {
    for (std::uint32_t spins = 0; !try_lock(); ++spins) {
      if (spins < spins_before_yield) {
        cpu_relax();
      } else {
        std::this_thread::yield();  // who holds it may wait for this core
      }
    }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  static constexpr std::uint32_t spins_before_yield = 100;
  std::atomic<bool> held_{false};
};

}  // namespace aplib
