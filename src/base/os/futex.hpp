// SPDX-License-Identifier: MIT
// What the operating system gives for sleeping: futex and membarrier. Linux only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace aplib::os {

/// Sleeps while `word` holds `expected`, until futex_wake, a signal, or the timeout. Spurious returns happen.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::optional<std::chrono::nanoseconds> timeout) noexcept;

/// Wakes all sleepers on `word`. Async-signal-safe.
void futex_wake(std::atomic<std::uint32_t>& word) noexcept;

/// Registers this process for process_barrier(). False where the kernel (or a container's filter) has no membarrier.
bool process_barrier_register() noexcept;

/// Every running thread of this process passes a full memory fence before this returns.
void process_barrier() noexcept;

}  // namespace aplib::os
