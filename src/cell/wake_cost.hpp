// SPDX-License-Identifier: MIT
// WakeCost: what it costs a thread to sleep and be woken, learned from real wake-ups, and so how long it polls first.
//
// Who polls for as long as a wake-up costs, and then sleeps, pays at most twice what one would who knew the length of
// the wait (Karlin, Manasse, McGeoch, Owicki: Competitive randomized algorithms for nonuniform problems, 1990). A time
// that is too short is worse than that, because waits cause each other: when one thread comes late, all others sleep,
// each is late by its wake-up, and so all sleep again in the next iteration. So the cost is that of the last wake-up
// of any thread of the process, from when its waker began, perhaps with others, until it ran. Wake-ups that cost less
// take it back slowly.
//
// Pure logic: no clock and no system call. All threads use it; values are hints, so every access is relaxed.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace aplib {

class WakeCost {
 public:
  using Duration = std::chrono::nanoseconds;

  /// What sleep costs besides, in caches, clock rates and the waker's time.
  static constexpr Duration unseen = std::chrono::microseconds(50);
  /// A machine whose cells all wait is to sleep soon. Longer delays are most likely a preemption.
  static constexpr Duration most = std::chrono::milliseconds(4);

  /// How long to poll.
  [[nodiscard]] Duration poll_time() const noexcept { return unseen + Duration(cost_.load(std::memory_order_relaxed)); }

  /// A thread runs again so long after its waker began. A preemption is forgotten after some 20 wake-ups.
  void woken_after(Duration cost) noexcept {
    const Duration::rep was = cost_.load(std::memory_order_relaxed);
    const Duration::rep now = std::min(cost, most).count();
    cost_.store(now >= was ? now : was - (was - now) / 4, std::memory_order_relaxed);
  }

  /// A wait has ended while it polled, after so long. Where it would have slept without what was learned, that is put
  /// to the proof now and then.
  void polled_for(Duration wait) noexcept {
    if (wait <= unseen) return;
    const Duration::rep was = cost_.load(std::memory_order_relaxed);
    cost_.store(was - was / 256, std::memory_order_relaxed);
  }

 private:
  std::atomic<Duration::rep> cost_{0};
};

}  // namespace aplib
