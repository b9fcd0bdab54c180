// SPDX-License-Identifier: MIT
// Doorbell: what a process of a loop net sleeps on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/bell.hpp"

namespace aplib::comm {

/// Thread safety: any thread. Use: ticket(), look whether there is something to do, sleep(ticket): whatever rings after the ticket was drawn ends the sleep.
class Doorbell {
 public:
  /// Something has come: ends every sleep whose ticket is older. Costs an atomic increment while nobody sleeps. Async-signal-safe.
  void ring() noexcept;
  /// The same, and also the next sleep ends at once when nobody sleeps now. Async-signal-safe.
  void call() noexcept;

  /// Draws a ticket. Nothing: a call() is pending, which this ends.
  [[nodiscard]] std::optional<std::uint32_t> ticket() noexcept;
  /// Sleeps until the bell rings or the time is over (none: for ever); may return early.
  void sleep(std::uint32_t ticket, std::optional<std::chrono::nanoseconds> timeout) noexcept;

  // The same for sleepers in poll(2): arm(), look whether there is something to do, sleep on the descriptor, disarm().

  /// -1: there are no descriptors left.
  [[nodiscard]] int descriptor() noexcept;
  /// False: a call() is pending.
  bool arm() noexcept;
  /// The last one ends a call().
  void disarm() noexcept;

 private:
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "signal handlers call");
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> called_{false};
  std::once_flag made_;
  std::unique_ptr<Bell> made_bell_;
  std::atomic<Bell*> bell_{nullptr};  // Null: nobody has asked for the descriptor.
};

}  // namespace aplib::comm
