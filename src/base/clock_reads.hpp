// SPDX-License-Identifier: MIT
// ClockReads: finds a task that waits for a time to come by reading the clock again and again.
#pragma once

#include <chrono>

namespace aplib {

class ClockReads {
 public:
  /// Call at each read, before it. True: the last reads came so fast that the task does nothing else, and others should
  /// run first.
  [[nodiscard]] bool spin() noexcept {
    if (++reads_ % reads_looked_at != 0) [[likely]]
      return false;
    const auto now = std::chrono::steady_clock::now();
    const bool spins = now - since_ < spin_time;
    since_ = now;
    return spins;
  }

 private:
  static constexpr unsigned reads_looked_at = 16;
  static constexpr auto spin_time = std::chrono::microseconds(50);  // for so many; who measures something takes longer

  unsigned reads_ = 0;
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace aplib
