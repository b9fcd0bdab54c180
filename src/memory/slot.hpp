// SPDX-License-Identifier: MIT
// The address plan: the slot of cell c lies at base + c * slot_bytes, in every process of a machine. It is never
// committed as a whole. Its first quarter holds instances of programs, the second the heap (slot_heap.hpp), and its
// second half the stacks of the cell's tasks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aplib/ids.hpp"
#include "base/sanitizer.hpp"

namespace aplib {

struct SlotPlan {
  // The sanitizers own most of the address space, so there slots hold only instances, and stacks lie elsewhere.
#if APLIB_TSAN
  static constexpr std::uintptr_t base = 0x10'0000'0000;  // what it calls low memory of the application
  static constexpr std::size_t bytes = std::size_t{64} << 20;
  static constexpr bool holds_stacks = false;
  static constexpr std::uint32_t host = 4096;
#elif APLIB_ASAN
  static constexpr std::uintptr_t base = 0x2000'0000'0000;
  static constexpr std::size_t bytes = std::size_t{4} << 30;
  static constexpr bool holds_stacks = false;
  static constexpr std::uint32_t host = 4096;
#else
  static constexpr std::uintptr_t base = 0x1000'0000'0000;
  static constexpr std::size_t bytes = std::size_t{4} << 30;
  static constexpr bool holds_stacks = true;
  static constexpr std::uint32_t host = cell_count_max;  ///< The host program's slot, behind those of all cells.
#endif
  static constexpr std::size_t count = std::size_t{cell_count_max} + 1;
  static constexpr std::size_t stacks_offset = bytes / 2;
  static constexpr std::size_t program_stacks_bytes = bytes / 8;

  static void* stacks_of(std::uint32_t cell) noexcept {
    return holds_stacks ? reinterpret_cast<void*>(base + cell * bytes + stacks_offset) : nullptr;
  }
  static constexpr std::size_t stacks_bytes() noexcept { return bytes - stacks_offset - program_stacks_bytes; }
  /// Stacks of tasks that run a loaded program: fewer and larger.
  static void* program_stacks_of(std::uint32_t cell) noexcept {
    return holds_stacks ? reinterpret_cast<void*>(base + (cell + 1) * bytes - program_stacks_bytes) : nullptr;
  }

  static char* instances_of(std::uint32_t cell) noexcept { return reinterpret_cast<char*>(base + cell * bytes); }
  static constexpr std::size_t instances_bytes() noexcept { return stacks_offset / 2; }

  static char* heap_of(std::uint32_t cell) noexcept { return instances_of(cell) + instances_bytes(); }
  static constexpr std::size_t heap_bytes() noexcept { return stacks_offset - instances_bytes(); }
  /// The beginning of the heap quarter that `address` lies in, or null.
  static char* heap_around(const void* address) noexcept {
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - base;
    if (offset >= count * bytes || offset % bytes - instances_bytes() >= heap_bytes()) return nullptr;
    return heap_of(static_cast<std::uint32_t>(offset / bytes));
  }
};

}  // namespace aplib
