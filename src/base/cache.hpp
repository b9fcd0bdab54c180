// SPDX-License-Identifier: MIT
// Cache geometry. What two processors write never shares a line, nor the line's neighbour (the prefetcher fetches pairs).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace aplib {

inline constexpr std::size_t cache_line_bytes = 64;
inline constexpr std::size_t cache_pair_bytes = 128;

/// Tells the core that we poll. On the machines we measured it also keeps the polling side from pulling the line away while the
/// writer still fills it: a ring of cache lines goes from 64 to 41 ns one way.
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

/// A clock that costs next to nothing and counts some billions a second, nobody knows how many: for "has a while passed".
inline std::uint64_t cycles() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace aplib
