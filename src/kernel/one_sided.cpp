// SPDX-License-Identifier: MIT
// The public functions of one-sided communication, from the caller to its task; and symmetric memory, which they name:
// the heap of the calling task's cell.
#include "aplib/one_sided.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "aplib/error.hpp"
#include "aplib/symmetric.hpp"
#include "cell/one_sided.hpp"
#include "kernel/api.hpp"
#include "kernel/caller.hpp"

namespace aplib::detail {

void put(const char* call, CellId cell, const void* local, std::size_t bytes, void* remote, const PutFlags& flags) {
  one_sided::put(self_or_throw(call), call, index(cell), local, bytes, remote, flags);
}

void put(const char* call, CellId cell, const void* local, void* remote, const Blocks& blocks, const PutFlags& flags) {
  one_sided::put(self_or_throw(call), call, index(cell), local, remote, blocks, flags);
}

void get(const char* call, CellId cell, void* local, std::size_t bytes, const void* remote, const GetFlags& flags) {
  one_sided::get(self_or_throw(call), call, index(cell), local, bytes, remote, flags);
}

void get(const char* call, CellId cell, void* local, const void* remote, const Blocks& blocks, const GetFlags& flags) {
  one_sided::get(self_or_throw(call), call, index(cell), local, remote, blocks, flags);
}

void wait_flag(const char* call, const std::int32_t* flag, std::int32_t count) {
  Processor::wait_flag(self_or_throw(call), call, flag, count);
}

void wait_acknowledged(const char* call) { one_sided::wait_acknowledged(self_or_throw(call), call); }

std::uint64_t fetch(const char* call, Fetch what, CellId cell, void* remote, Word word, std::uint64_t operand,
                    std::uint64_t expected) {
  return one_sided::fetch(self_or_throw(call), call,
                          {what, word, index(cell), static_cast<std::byte*>(remote), operand, expected});
}

}  // namespace aplib::detail

// ---------------------------------------------------------------- symmetric memory

namespace aplib {
namespace {

Cell& calling_cell(const char* call) {
  TaskControl* const self = running_task();
  if (self == nullptr) api::fail(Errc::bad_argument, call, "called outside a task; only cells have such memory");
  return *self->cell;
}

SlotHeap& heap_of(Cell& cell, const char* call) {
  const std::uint32_t number = cell.processor->domain().visible(cell.id);
  SlotHeap* const heap = cell.heap.get(number);
  if (heap == nullptr) {
    api::fail(Errc::exhausted, call,
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
    api::fail(
        Errc::bad_argument, call,
        fmt::format("{} is not in the heap of a cell of this process; give what symmetric_allocate gave", memory));
  }
  return *heap;
}

}  // namespace

namespace api {

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

}  // namespace api

void* symmetric_allocate(std::size_t bytes, std::size_t alignment) {
  constexpr const char* call = "symmetric_allocate";
  if (void* memory = api::symmetric_allocate(call, bytes, alignment)) return memory;
  api::fail(Errc::exhausted, call,
            fmt::format("no room for {} bytes in the cell's heap, which holds {} MiB in all; allocate less, or use "
                        "more cells",
                        bytes, SlotPlan::heap_bytes() >> 20U));
}

void symmetric_free(void* memory) { api::symmetric_free("symmetric_free", memory); }

}  // namespace aplib
