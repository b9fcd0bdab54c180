// SPDX-License-Identifier: MIT
// LoadMeter: how busy a processor has been lately, as others may know it. Cells move by this, not by a moment's look: cells that meet in barriers leave
// every processor idle now and then, and moving one for that only makes the next barrier late.
//
// The owner writes; anyone reads busy_share(). Values are a hint, so every access is relaxed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace aplib {

class LoadMeter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto window = std::chrono::milliseconds(2);

  /// Owner: nothing to do since `start`.
  void idle_since(Clock::time_point start) noexcept {
    idle_since_.store(start.time_since_epoch().count(), std::memory_order_relaxed);  // relaxed: a hint
  }

  /// Owner: something to do again.
  void busy_from(Clock::time_point now) noexcept {
    const Clock::rep since = idle_since_.exchange(0, std::memory_order_relaxed);  // relaxed: a hint
    if (since != 0) idle_ += now.time_since_epoch() - Clock::duration(since);
    close_window(now);
  }

  /// Owner, while busy: share of time it has been busy in the current window, if that is long enough to tell, else in the last one.
  double own_share(Clock::time_point now) noexcept {
    close_window(now);
    return share_of(share_.load(std::memory_order_relaxed));  // relaxed: own value
  }

  /// Owner: a cell has come or gone. What was measured says nothing any more; busy until the next window is full.
  void restart(Clock::time_point now) noexcept {
    start_ = now;
    idle_ = {};
    share_.store(1000, std::memory_order_relaxed);  // relaxed: a hint
  }

  /// Anyone: 0 (idle) .. 1 (busy).
  [[nodiscard]] double busy_share(Clock::time_point now) const noexcept {
    const Clock::rep since = idle_since_.load(std::memory_order_relaxed);  // relaxed: a hint
    if (since != 0 && now.time_since_epoch() - Clock::duration(since) >= window) return 0;
    return share_of(share_.load(std::memory_order_relaxed));  // relaxed: a hint
  }

  /// Anyone: is it idle at this moment?
  [[nodiscard]] bool idle_now() const noexcept {
    return idle_since_.load(std::memory_order_relaxed) != 0;
  }  // relaxed: a hint

 private:
  static double share_of(std::uint32_t per_mille) noexcept { return per_mille / 1000.0; }

  void close_window(Clock::time_point now) noexcept {
    const Clock::duration length = now - start_;
    if (length < window) return;
    const double idle = std::chrono::duration<double>(idle_) / std::chrono::duration<double>(length);
    const double busy = idle < 1 ? 1 - idle : 0;
    share_.store(static_cast<std::uint32_t>(busy * 1000), std::memory_order_relaxed);  // relaxed: a hint
    start_ = now;
    idle_ = {};
  }

  // owner only
  Clock::time_point start_{};
  Clock::duration idle_{};
  // for all
  std::atomic<Clock::rep> idle_since_{0};  // 0: busy
  std::atomic<std::uint32_t> share_{1000};
};

}  // namespace aplib
