// SPDX-License-Identifier: MIT
// ParkerModel: stands in for the operating system behind Parker, under the deterministic scheduler.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "det/explore.hpp"

namespace aplib {

enum class ParkerFault { none, no_sleeper_fence, no_waker_fence };

struct ParkerModel {
  ParkerFault fault = ParkerFault::none;

  void sleeper_fence() const noexcept {
    if (fault != ParkerFault::no_sleeper_fence) det::fence(std::memory_order_seq_cst);
  }
  void waker_fence() const noexcept {
    if (fault != ParkerFault::no_waker_fence) det::fence(std::memory_order_seq_cst);
  }
  void wait(det::DetAtomic<std::uint32_t>& word, std::uint32_t expected,
            std::optional<std::chrono::nanoseconds> timeout) const noexcept {
    det::futex_wait(word, expected, timeout.value_or(std::chrono::nanoseconds::max()));
  }
  void wake(det::DetAtomic<std::uint32_t>& word) const noexcept { det::futex_wake(word, 1); }
};

}  // namespace aplib
