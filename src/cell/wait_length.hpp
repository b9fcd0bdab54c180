// SPDX-License-Identifier: MIT
// WaitLength: how long a thread's waits take lately, and so how long it polls where nobody else wants its core.
//
// To sleep before a wait ends costs its wake-up, each time. Where waits end within some milliseconds, as in programs
// whose ranks have uneven work, who polls through them loses nothing but the time of a core that nobody wants.
// Hypervisors do the same for virtual cores that halt (Linux: "halt polling").
//
// Pure logic: no clock and no system call. One thread uses it.
#pragma once

#include <algorithm>
#include <chrono>

namespace aplib {

class WaitLength {
 public:
  using Duration = std::chrono::nanoseconds;

  /// Of a longer wait, the wake-up is a small part. A machine whose cells all wait is to sleep soon.
  static constexpr Duration most = std::chrono::milliseconds(4);

  /// Waits as the last ones end within this.
  [[nodiscard]] Duration poll_time() const noexcept { return std::min(usual_ + usual_ / 2, most); }

  /// A wait has taken so long. Of long ones, a few are enough to forget.
  void waited(Duration length) noexcept {
    usual_ = length > most ? usual_ / 4 : std::max(length, usual_ - usual_ / 32);
  }

 private:
  Duration usual_{};
};

}  // namespace aplib
