// SPDX-License-Identifier: MIT
// copy_small: up to 40 bytes in straight-line code (a call of memcpy with a variable size costs a few ns, which a
// small message would feel).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace aplib {

/// Copies exactly `bytes` <= 40; may read and write nothing beyond. Overlapping loads and stores instead of loops.
inline void copy_small(void* to, const void* from, std::size_t bytes) noexcept {
  auto* t = static_cast<char*>(to);
  const auto* f = static_cast<const char*>(from);
  if (bytes == 8) {
    __builtin_memcpy(t, f, 8);
  } else if (bytes > 16) {
    if (bytes > 32) {
      __builtin_memcpy(t, f, 16);
      __builtin_memcpy(t + 16, f + 16, 16);
    } else {
      __builtin_memcpy(t, f, 16);
    }
    __builtin_memcpy(t + bytes - 16, f + bytes - 16, 16);
  } else if (bytes > 8) {
    __builtin_memcpy(t, f, 8);
    __builtin_memcpy(t + bytes - 8, f + bytes - 8, 8);
  } else if (bytes >= 4) {
    __builtin_memcpy(t, f, 4);
    __builtin_memcpy(t + bytes - 4, f + bytes - 4, 4);
  } else {
    for (std::size_t i = 0; i < bytes; ++i) t[i] = f[i];
  }
}

/// Copies any number of bytes; nothing at all of an empty message, whose addresses may be null.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace aplib
