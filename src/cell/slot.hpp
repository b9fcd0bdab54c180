// SPDX-License-Identifier: MIT
// The address plan: slot of cell c = base + c * slot_bytes, the same in every process of a machine. Reserved, never committed as a whole. Today it holds
// the stacks of the cell's tasks; instances and heap will lie below them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "task/switch.hpp"

namespace aplib {

struct SlotPlan {
#if APLIB_TSAN || APLIB_ASAN
  static constexpr std::uintptr_t base = 0;  // the sanitizers own the address space: stacks go where the system likes
#else
  static constexpr std::uintptr_t base = 0x1000'0000'0000;
#endif
  static constexpr std::size_t bytes = std::size_t{4} << 30;
  static constexpr std::size_t stacks_offset = std::size_t{2} << 30;

  static void* stacks_of(std::uint32_t cell) noexcept {
    return base == 0 ? nullptr : reinterpret_cast<void*>(base + cell * bytes + stacks_offset);
  }
  static constexpr std::size_t stacks_bytes() noexcept { return bytes - stacks_offset; }
};

}  // namespace aplib
