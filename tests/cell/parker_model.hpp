// SPDX-License-Identifier: MIT
// ParkerModel: stands in for the operating system behind Parker, under the deterministic scheduler.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "det/explore.hpp"

namespace aplib {

enum class ParkerFault { none, no_heavy_fence, no_light_fence };

struct ParkerModel {
  bool has_process_barrier = true;
  ParkerFault fault = ParkerFault::none;

  void heavy_fence() const noexcept {
    if (fault == ParkerFault::no_heavy_fence) return;
    det::fence(std::memory_order_seq_cst);
    if (has_process_barrier) det::membarrier();
  }
  void light_fence() const noexcept {
    if (!has_process_barrier && fault != ParkerFault::no_light_fence) det::fence(std::memory_order_seq_cst);
  }
  void wait(det::DetAtomic<std::uint32_t>& word, std::uint32_t expected,
            std::optional<std::chrono::nanoseconds> timeout) const noexcept {
    det::futex_wait(word, expected, timeout.value_or(std::chrono::nanoseconds::max()));
  }
  void wake(det::DetAtomic<std::uint32_t>& word) const noexcept { det::futex_wake(word, 1); }
};

}  // namespace aplib
