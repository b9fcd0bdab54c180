// SPDX-License-Identifier: MIT
// The address plan: the slot of cell c lies at base + c * distance, in every process of a machine. It is never
// committed as a whole. Its first quarter holds instances of programs, the second the heap (slot_heap.hpp), and its
// second half the stacks of the cell's tasks.
//
// The distance is some pages more than a slot has. Were it a power of two, the same object of all cells would compete
// for one set of the TLB, and the entries of their page tables for one set of the cache: a thread that switches among
// 32 cells and more would miss both each time. So slots are alike only up to alignments of a page.
//
// LowPlan: instances and heaps of programs that keep pointers in ints. They lie below 2 GiB, so these keep all their
// bits. There is no room for the same addresses in all processes, so other cells cannot name this memory.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "aplib/ids.hpp"
#include "base/sanitizer.hpp"

namespace aplib {

/// Where the instances and the heap of one cell go.
struct CellMemory {
  char* instances;
  char* heap;
  std::size_t bytes_each;
};

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
  static constexpr std::size_t alignment = 4096;                   ///< What lies aligned so in one slot does in all.
  static constexpr std::size_t distance = bytes + 37 * alignment;  // odd, so that it meets all sets
  static constexpr std::size_t stacks_offset = bytes / 2;
  static constexpr std::size_t program_stacks_bytes = bytes / 8;

  static constexpr std::uintptr_t at(std::uint32_t cell) noexcept { return base + cell * distance; }
  /// The cell whose slot `address` lies in, or would; `count` and more: none's.
  static constexpr std::size_t cell_around(std::uintptr_t address) noexcept {
    return address < base ? count : (address - base) / distance;
  }

  static void* stacks_of(std::uint32_t cell) noexcept {
    return holds_stacks ? reinterpret_cast<void*>(at(cell) + stacks_offset) : nullptr;
  }
  static constexpr std::size_t stacks_bytes() noexcept { return bytes - stacks_offset - program_stacks_bytes; }
  /// Stacks of tasks that run a loaded program: fewer and larger.
  static void* program_stacks_of(std::uint32_t cell) noexcept {
    return holds_stacks ? reinterpret_cast<void*>(at(cell) + bytes - program_stacks_bytes) : nullptr;
  }

  static char* instances_of(std::uint32_t cell) noexcept { return reinterpret_cast<char*>(at(cell)); }
  static constexpr std::size_t instances_bytes() noexcept { return stacks_offset / 2; }

  static char* heap_of(std::uint32_t cell) noexcept { return instances_of(cell) + instances_bytes(); }
  static constexpr std::size_t heap_bytes() noexcept { return stacks_offset - instances_bytes(); }
  static CellMemory of(std::uint32_t cell) noexcept { return {instances_of(cell), heap_of(cell), heap_bytes()}; }
  /// The beginning of the heap quarter that `address` lies in, or null.
  static char* heap_around(const void* address) noexcept {
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    const std::size_t cell = cell_around(place);
    if (cell >= count) return nullptr;
    char* const heap = heap_of(static_cast<std::uint32_t>(cell));
    return place - reinterpret_cast<std::uintptr_t>(heap) < heap_bytes() ? heap : nullptr;
  }
};

struct LowPlan {
  static constexpr std::uintptr_t base = 0x1000'0000;  // behind executables that lie at fixed addresses
  static constexpr std::uintptr_t end = 0x4000'0000;   // from here on bodies of messages, see arch::map_low
  static constexpr std::size_t host_bytes = std::size_t{256} << 20;
  static constexpr std::size_t cells_bytes = end - base - host_bytes;

  static CellMemory of_host() noexcept { return halves_of(base, host_bytes); }
  /// The `index`-th of the `cells` cells of this process. One machine at a time.
  static CellMemory of_cell(std::size_t index, std::size_t cells) noexcept {
    const std::size_t bytes = std::bit_floor(cells_bytes / cells);
    cell_bytes.store(bytes, std::memory_order_relaxed);  // relaxed: who asks for a block has it from there
    return halves_of(base + host_bytes + index * bytes, bytes);
  }

  static bool holds(const void* address) noexcept {
    return reinterpret_cast<std::uintptr_t>(address) - base < end - base;
  }
  /// The number of the heap whose half `address` lies in: 0 is the host program's. Nothing: none. REQUIRES: holds().
  static std::optional<std::size_t> heap_number(const void* address) noexcept {
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - base;
    if (offset < host_bytes) return offset < host_bytes / 2 ? std::nullopt : std::optional<std::size_t>(0);
    const std::size_t bytes = cell_bytes.load(std::memory_order_relaxed);  // relaxed: see of_cell()
    const std::size_t among_cells = offset - host_bytes;
    if (bytes == 0 || among_cells % bytes < bytes / 2) return std::nullopt;
    return 1 + among_cells / bytes;
  }
  static char* heap_around(const void* address) noexcept {
    const std::optional<std::size_t> number = heap_number(address);
    if (!number) return nullptr;
    if (*number == 0) return of_host().heap;
    const std::size_t bytes = cell_bytes.load(std::memory_order_relaxed);  // relaxed: see of_cell()
    return halves_of(base + host_bytes + (*number - 1) * bytes, bytes).heap;
  }

 private:
  static CellMemory halves_of(std::uintptr_t place, std::size_t bytes) noexcept {
    return {reinterpret_cast<char*>(place), reinterpret_cast<char*>(place + bytes / 2), bytes / 2};
  }

  static inline constinit std::atomic<std::size_t> cell_bytes{0};
};

}  // namespace aplib
