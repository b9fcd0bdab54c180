// SPDX-License-Identifier: MIT
// Symmetric memory: the heap of the calling task's cell, for programs that ask for it.
#include "aplib/symmetric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "cell/processor.hpp"
#include "kernel/face.hpp"

namespace aplib {
namespace {

Cell& calling_cell(const char* call) {
  Processor* const processor = Processor::current();
  if (processor == nullptr || processor->running() == nullptr)
    face::fail(Errc::bad_argument, call, "called outside a task; only cells have such memory");
  return *processor->running()->cell;
}

SlotHeap& heap_of(Cell& cell, const char* call) {
  const std::uint32_t number = cell.processor->domain().visible(cell.id);
  SlotHeap* const heap = cell.heap.get(number);
  if (heap == nullptr) {
    face::fail(Errc::exhausted, call,
               fmt::format("the cell's heap cannot be made at {}: {}; run one machine at a time in a process",
                           static_cast<void*>(SlotPlan::heap_of(number)), std::strerror(errno)));
  }
  return *heap;
}

/// The heap of this process that the block is of.
SlotHeap& heap_around(const Cell& caller, const char* call, const void* memory) {
  SlotHeap* const heap = SlotHeap::around(memory);
  if (heap != nullptr && heap == caller.heap.made()) return *heap;
  const Domain& domain = caller.processor->domain();
  const auto is_it = [heap](const Cell* cell) { return cell != nullptr && cell->heap.made() == heap; };
  if (heap == nullptr || std::ranges::none_of(domain.cells, is_it)) {
    face::fail(
        Errc::bad_argument, call,
        fmt::format("{} is not in the heap of a cell of this process; give what symmetric_allocate gave", memory));
  }
  return *heap;
}

}  // namespace

namespace face {

void* symmetric_allocate(const char* call, std::size_t bytes, std::size_t alignment, bool zeroed) {
  Cell& cell = calling_cell(call);
  if (!std::has_single_bit(alignment))
    fail(Errc::bad_argument, call, fmt::format("{} is no alignment; use a power of two", alignment));
  SlotHeap& heap = heap_of(cell, call);
  return zeroed ? heap.allocate_zeroed(bytes) : heap.allocate(bytes, alignment);
}

void symmetric_free(const char* call, void* memory) {
  if (memory == nullptr) return;
  const Cell& cell = calling_cell(call);
  SlotHeap& heap = heap_around(cell, call, memory);
  if (!(&heap == cell.heap.made() ? heap.release(memory) : heap.release_from_outside(memory)))
    fail(Errc::bad_argument, call, fmt::format("{} is no block of the heap, or was freed before", memory));
}

void* symmetric_resize(const char* call, void* memory, std::size_t bytes) {
  Cell& cell = calling_cell(call);
  if (memory == nullptr) return heap_of(cell, call).allocate(bytes);
  SlotHeap& heap = heap_around(cell, call, memory);
  if (&heap == cell.heap.made()) return heap.resize(memory, bytes);
  void* const moved = heap_of(cell, call).allocate(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, memory, std::min(bytes, SlotHeap::usable_bytes(memory)));
  symmetric_free(call, memory);
  return moved;
}

}  // namespace face

void* symmetric_allocate(std::size_t bytes, std::size_t alignment) {
  constexpr const char* call = "symmetric_allocate";
  if (void* memory = face::symmetric_allocate(call, bytes, alignment)) return memory;
  face::fail(Errc::exhausted, call,
             fmt::format("no room for {} bytes in the cell's heap, which holds {} MiB in all; allocate less, or use "
                         "more cells",
                         bytes, SlotPlan::heap_bytes() >> 20U));
}

void symmetric_free(void* memory) { face::symmetric_free("symmetric_free", memory); }

}  // namespace aplib
