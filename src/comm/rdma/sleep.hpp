// SPDX-License-Identifier: MIT
// Sleep: what the threads of an rdma module sleep on: the provider's descriptors and a bell, as one descriptor.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "comm/bell.hpp"

namespace aplib::comm {

/// Thread safety: any thread.
class Sleep {
 public:
  Sleep() = default;
  ~Sleep();
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;

  /// Once, before the rest. Throws Error(failed).
  void open(std::span<const int> descriptors);
  /// Readable when one of them is, or the bell rings.
  [[nodiscard]] int descriptor() const noexcept { return all_; }

  /// Counts the caller among the sleepers, until disarm().
  void arm() noexcept { bell_.begin(); }
  void disarm() noexcept { bell_.end(); }
  /// Ends the sleep of all who are armed. Any thread.
  void ring() noexcept {
    if (bell_.anyone()) bell_.ring();
  }
  /// And of who comes next, if nobody is. Async-signal-safe.
  void call() noexcept { bell_.ring(); }
  /// Between arm() and disarm().
  void sleep(std::optional<std::chrono::nanoseconds> timeout) const noexcept;

 private:
  int all_ = -1;
  Bell bell_;
};

}  // namespace aplib::comm
