// SPDX-License-Identifier: MIT
// The 64-bit match key of a message, and the key and mask a receive asks for. The matching core knows nothing but
// "(key ^ wanted) & mask == 0"; another front end may lay the bits out in its own way.
//
//   63..61 space | 60..44 source cell (index; the host is the cell count) | 43..24 source task | 23..0 type
#pragma once

#include <cstdint>

#include "aplib/ids.hpp"

namespace aplib {

struct MatchKey {
  static constexpr int space_shift = 61;
  static constexpr int cell_shift = 44;
  static constexpr int task_shift = 24;
  static constexpr std::uint64_t space_mask = 0x7ULL << space_shift;
  static constexpr std::uint64_t cell_mask = 0x1'ffffULL << cell_shift;
  static constexpr std::uint64_t task_mask = 0xf'ffffULL << task_shift;
  static constexpr std::uint64_t type_mask = 0xff'ffffULL;

  static constexpr std::uint64_t make(std::uint32_t space, std::uint32_t cell, std::uint32_t task,
                                      std::uint32_t type) noexcept {
    return (std::uint64_t{space} << space_shift) | (std::uint64_t{cell} << cell_shift) |
           (std::uint64_t{task} << task_shift) | type;
  }
  static constexpr std::uint32_t cell(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>((key & cell_mask) >> cell_shift);
  }
  static constexpr std::uint32_t task(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>((key & task_mask) >> task_shift);
  }
  static constexpr std::uint32_t type(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>(key & type_mask);
  }
};

/// What a receive accepts: every message whose key agrees with `key` in the bits of `mask`.
struct MatchWish {
  std::uint64_t key = 0;
  std::uint64_t mask = 0;
  [[nodiscard]] constexpr bool accepts(std::uint64_t arrived) const noexcept { return ((arrived ^ key) & mask) == 0; }
};

}  // namespace aplib
