// SPDX-License-Identifier: MIT
// Bell: an event that ends the sleeps of several threads, and is silent again when all have heard it. For sleepers in
// poll(2) and epoll.
//
// Invariants: (1) rung_ is set behind each ring, so that a bell that rings is silenced by the last sleeper of now
// or of later; (2) only the last sleeper silences, and nobody begins to sleep meanwhile (the lock), so that nobody
// oversleeps a ring: one that comes while it does so was for sleepers that are awake now.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/os/descriptor.hpp"

namespace aplib::os {

/// Thread safety: all functions, any thread.
class Bell {
 public:
  /// Throws Error(exhausted).
  Bell() = default;
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  /// Readable while the bell rings.
  [[nodiscard]] int descriptor() const noexcept { return event_.get(); }
  /// Ends all sleeps between begin() and end(), and if there are none, the next one. Async-signal-safe.
  void ring() noexcept {
    event_.signal();
    rung_.store(true);
  }

  /// Somebody is about to sleep. What it looks at behind this, others have changed before they looked at anyone().
  void begin() noexcept {
    const std::lock_guard lock(mutex_);
    sleepers_.fetch_add(1);
  }
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    if (sleepers_.fetch_sub(1) == 1 && rung_.exchange(false)) event_.clear();
  }
  /// Somebody sleeps, or is about to.
  [[nodiscard]] bool anyone() const noexcept { return sleepers_.load() != 0; }

 private:
  EventFd event_;
  std::mutex mutex_;  // Of begin() and end().
  std::atomic<std::uint32_t> sleepers_ = 0;
  std::atomic<bool> rung_ = false;
};

}  // namespace aplib::os
