// SPDX-License-Identifier: MIT
// CoreSharing: whether others want the core of a thread that waits, found out by offering it.
//
// A thread that polls on a core of its own finds what it waits for soonest. Where more threads run than there are
// cores, it keeps the one from running that would send. Nobody tells how many run: other processes come and go, as
// ranks that are processes do. So a thread that has polled for some time offers its core (sched_yield). If that takes
// longer than it takes when nobody wants the core, another thread has run, and from then on it offers the core after
// each look.
//
// Who computes does not give the core back before the end of its time slice, some milliseconds. A thread that sleeps
// and is woken gets it at once. So where an offer has cost that much, a thread that waits sleeps instead. That is for
// cores that the machine has for itself: where its own threads are more than cores, it is they that compute.
//
// Pure logic: no clock and no system call. One thread uses it.
#pragma once

#include <algorithm>
#include <chrono>

#include "cell/cell.hpp"

namespace aplib {

class CoreSharing {
 public:
  /// `is_own`: by all that is known, no other thread of the machine runs on the core.
  explicit CoreSharing(bool is_own = true) noexcept : is_own_(is_own) {}

  /// An offer costs some 0.4 us: while nobody takes it, a wait of less than this makes none.
  static constexpr auto offer_interval = std::chrono::microseconds(10);
  /// An offer that takes longer has been taken.
  static constexpr auto alone_max = std::chrono::microseconds(3);
  /// So long after the last offer that was taken, the core is one's own again.
  static constexpr auto memory = std::chrono::milliseconds(1);
  /// An offer that takes so long was taken by who computes.
  static constexpr auto slice_min = std::chrono::milliseconds(1);
  /// So long after it the next one is tried, and each time after twice as long while they take so long, because it may
  /// have been a program's start. In the end, a slice of four milliseconds is a sixtieth.
  static constexpr Clock::duration slice_memory_min = std::chrono::milliseconds(8);
  static constexpr Clock::duration slice_memory_max = std::chrono::milliseconds(256);

  /// Others have run on this core lately: look once, and offer it.
  [[nodiscard]] bool is_shared() const noexcept { return is_shared_; }

  /// Who computes wants the core: sleep rather than offer it.
  [[nodiscard]] bool is_computed_on(Clock::time_point now) const noexcept { return now < computed_until_; }
  /// What a wait takes says more about others than about it.
  [[nodiscard]] bool is_wanted(Clock::time_point now) const noexcept { return is_shared_ || is_computed_on(now); }

  /// Whether a thread that has waited since `start` shall offer its core.
  [[nodiscard]] bool is_due(Clock::time_point start, Clock::time_point now) const noexcept {
    return is_shared_ || now - std::max(start, last_) >= offer_interval;
  }

  /// It has offered the core at `before`, and runs again at `after`. Returns for how long others have run.
  Clock::duration offered(Clock::time_point before, Clock::time_point after) noexcept {
    last_ = after;
    const Clock::duration took = after - before;
    const bool is_slice = is_own_ && took >= slice_min;
    if (is_slice) {
      computed_until_ = after + slice_memory_;
      slice_memory_ = std::min(2 * slice_memory_, slice_memory_max);
    } else {
      slice_memory_ = slice_memory_min;
    }
    if (took > alone_max) {
      taken_ = after;
      is_shared_ = !is_slice;
      return took;
    }
    is_shared_ = is_shared_ && after - taken_ < memory;
    return {};
  }

 private:
  bool is_own_;
  bool is_shared_ = false;
  Clock::time_point last_{};   // offer
  Clock::time_point taken_{};  // the last one that was
  Clock::time_point computed_until_{};
  Clock::duration slice_memory_ = slice_memory_min;
};

}  // namespace aplib
