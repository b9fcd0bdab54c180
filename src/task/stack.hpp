// SPDX-License-Identifier: MIT
// Stacks of tasks. Their memory is reserved, and committed as it is touched; a guard lies below each. A StackPool
// belongs to one cell, and only the processor that carries the cell uses it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "task/switch.hpp"

namespace aplib {

/// How the memory below a stack is guarded.
enum class StackGuard : std::uint8_t {
  pages,  ///< An access faults, so an overflow is reported at once.
  /// The kernel's limit on mappings is near, so there is no guard. A word at the low end is checked when the task
  /// ends.
  canary,
};

struct Stack {
  char* low = nullptr;  ///< Lowest usable byte; the guard, if any, lies below.
  char* top = nullptr;  ///< One past the highest byte.
  StackGuard guard = StackGuard::pages;
  [[nodiscard]] std::size_t bytes() const noexcept { return static_cast<std::size_t>(top - low); }
};

/// Invariants: (1) every stack of a pool has the same size; (2) memory is given back to the system only with the pool.
class StackPool {
 public:
  /// `home`: the address range for stacks if it is free (the cell's slot), or null. `stack_bytes`: whole pages.
  StackPool(std::size_t stack_bytes, void* home, std::size_t home_bytes);
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  /// Gives out a stack, the one most recently freed first. Throws Error(exhausted), which names the option.
  Stack get() {
    if (free_.empty()) [[unlikely]]
      grow();
    const Stack stack = free_.back();
    free_.pop_back();
#if APLIB_ASAN
    // A task leaves its last frames without returning, so ASan's marks of them are still there.
    __asan_unpoison_memory_region(stack.low, stack.bytes());
#endif
    return stack;
  }
  void put(const Stack& stack) noexcept {
#if APLIB_ASAN
    __asan_poison_memory_region(stack.low, stack.bytes());  // also the control block of the task that was there
#endif
    free_.push_back(stack);  // reserved by grow()
  }

  [[nodiscard]] std::size_t stack_bytes() const noexcept { return stack_bytes_; }

  /// What faults below a stack of this size: a sixteenth of it, in whole pages, so that a frame larger than a page does
  /// not jump over the guard into the next stack.
  static constexpr std::size_t guard_bytes(std::size_t stack_bytes) noexcept {
    return std::clamp(stack_bytes / 16 / page * page, page, std::size_t{512} << 10);
  }

 private:
  static constexpr std::size_t page = 4096;

  struct Region {
    char* address;
    std::size_t bytes;
    std::vector<unsigned> valgrind_ids;
  };

  void grow();

  std::size_t stack_bytes_;
  char* home_;
  char* home_end_;
  std::size_t next_count_ = 1;
  std::vector<Stack> free_;
  std::vector<Region> regions_;
};

/// How far down a task's stack begins, so that those of many cells, which lie at the same offset of every slot, do not
/// compete for the same few sets of the first-level cache. The shifts differ in the page, too: where the low halves of
/// two addresses are the same, some processors keep only one of them at a time.
constexpr std::size_t stack_colour(std::size_t stack_bytes, std::uint32_t cell, std::uint32_t task) noexcept {
  constexpr std::size_t step = 1024 + 64;
  constexpr std::size_t share = 16;  // of the stack
  constexpr std::size_t colours_max = 16;
  const std::size_t colours = stack_bytes / share / step;  // on a small one pages are scarce
  if (colours >= colours_max) return (cell + task) % colours_max * step;
  return colours > 1 ? (cell + task) % static_cast<std::uint32_t>(colours) * step : 0;
}

/// Canary of stacks without a guard.
inline constexpr std::uint64_t stack_canary = 0x5ca1'ab1e'0f'57ac'4bULL;

}  // namespace aplib
