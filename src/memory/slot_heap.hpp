// SPDX-License-Identifier: MIT
// SlotHeap: the heap of a cell in its slot (slot.hpp), called "symmetric heap" elsewhere. The same calls in the same
// order give the same offsets in every cell of the machine, whatever its processes, threads and hosts do. So a cell
// names memory of another by its own address of the same object.
//
// Lists of freed blocks by size, last in, first out, stand in front of best fit with coalescing (Boost.Interprocess,
// rbtree_best_fit). Pages come as the heap grows and stay until the end of the run, because remote memory may be
// registered. The heap's own state lies at its beginning, so that any block leads to its heap.
//
// Invariants: (1) Only flows of the cell call allocate(), resize() and release(). They never run in parallel until
// share() is called, and take a lock from then on. (2) Others give blocks back by release_from_outside(), which pushes
// them on `outside_`. A flow of the cell takes them all when its lists are empty. (3) Nothing but these calls, in their
// order, decides where a block lies: no address, no time. Where others free blocks, threads allocate at the same time,
// or ask for more than SlotPlan::alignment, layouts may differ. (4) What lies above `fresh_` has been zero since the
// system gave it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "memory/shared_file.hpp"
#include "memory/slot.hpp"

namespace aplib {

/// Where a heap's pages come from: a part of a HeapFile, or the system's private memory.
struct HeapSource {
  int descriptor = -1;  ///< -1: private.
  std::uint64_t offset = 0;
};

/// The heaps of a process's cells, so that other processes of this host can map them, too.
class HeapFile {
 public:
  static constexpr const char* name = "aplib-heaps";

  /// With room for `heaps` heaps. Null: the system has none, and heaps are private.
  static std::unique_ptr<HeapFile> make(std::uint32_t heaps);

  [[nodiscard]] HeapSource source(std::uint32_t index) const noexcept {
    return {file_.descriptor(), index * std::uint64_t{SlotPlan::heap_bytes()}};
  }

 private:
  explicit HeapFile(SharedFile file) noexcept : file_(std::move(file)) {}
  SharedFile file_;
};

class SlotHeap {
 public:
  static constexpr std::size_t alignment_min = 16;

  /// Of the library that places blocks (Boost 1.74: 1074). Where it differs, the same calls may give other offsets: of
  /// blocks of the same size that are free, another version takes another one.
  [[nodiscard]] static std::uint32_t layout() noexcept;

  /// Makes a heap in the `room` bytes at `place` (aligned to pages), of which it maps the first. Null when they are
  /// in use or the system has no memory; errno says which (EEXIST, ENOMEM). `source` outlives it.
  static SlotHeap* make(char* place, std::size_t room, HeapSource source = {}) noexcept;
  /// Gives its pages back. Nobody may use it or its blocks any more.
  static void unmake(SlotHeap* heap) noexcept;
  /// The heap whose block `address` is; null: it lies in no slot's heap. Call from: any thread, for a block that is
  /// held.
  static SlotHeap* around(const void* address) noexcept {
    char* place = SlotPlan::heap_around(address);
    if (place == nullptr && LowPlan::holds(address)) [[unlikely]]
      place = LowPlan::heap_around(address);
    return reinterpret_cast<SlotHeap*>(place);
  }
  /// Whether there is a heap where around() says. Where not, the address is somebody else's: with an unlimited stack,
  /// say, the system maps what it likes where slots are. Call from: any thread.
  static bool is_made(const SlotHeap* heap) noexcept;

  /// A block of at least `bytes`, null when there is no room left. `alignment`: a power of two. `zeroed`: its bytes
  /// are zero. Call from: flows of the cell.
  void* allocate(std::size_t bytes) noexcept;
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept;
  void* allocate_zeroed(std::size_t bytes) noexcept;
  /// The block with at least `bytes`, here or moved; null: no room, and the block is as it was. Call from: flows of
  /// the cell.
  void* resize(void* block, std::size_t bytes) noexcept;
  /// False: it is no block of this heap, or has been freed already, as far as can be seen. Call from: flows of the
  /// cell.
  [[nodiscard]] bool release(void* block) noexcept;
  /// The same from any thread that is no flow of the cell.
  [[nodiscard]] bool release_from_outside(void* block) noexcept;
  /// What fits into a block.
  static std::size_t usable_bytes(const void* block) noexcept;

  /// Threads of the cell's program are about to run beside its tasks. Call from: a flow of the cell, before they do.
  void share() noexcept {
    if (!shared_) shared_ = true;  // once threads run they read it without further ado
  }

  /// The heap's memory reaches so far from its beginning, its own state included; it only grows. Call from: any thread.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept {
    return mapped_.load(std::memory_order_acquire);  // pairs with grow(): the pages are there
  }
  [[nodiscard]] char* begin() noexcept { return reinterpret_cast<char*>(this); }
  [[nodiscard]] const HeapSource& source() const noexcept { return source_; }

  /// The cell's tasks unwind, but others may still write to its memory. No block that is freed from here on is used
  /// again, so that they hit neither the heap's links nor another block. Call from: any thread.
  void keep_freed() noexcept { keeps_.store(true, std::memory_order_relaxed); }  // relaxed: before who calls unwinds

  // For other processes that have mapped it. Call from: any thread.
  /// Tasks of the cell wait for flags, and their processor is asleep or about to be: who writes here must say so.
  [[nodiscard]] bool sleeps() const noexcept {
    return sleeps_.load(std::memory_order_relaxed);  // relaxed: both sides have a fence in between; see Watch
  }
  void set_sleeps(bool sleeps) noexcept { sleeps_.store(sleeps, std::memory_order_relaxed); }  // relaxed: the same

 private:
  /// Of a block that is free, at its beginning.
  struct Freed {
    Freed* next;
    const SlotHeap* listed;  // in a list of this heap: a second free is seen
  };
  struct List {
    Freed* first = nullptr;
    std::uint32_t length = 0;
  };
  // Blocks have 16 * index - 8 usable bytes.
  static constexpr std::size_t list_count = 66;
  static constexpr std::uint32_t list_length_max = 64;
  class Tree;  // behind the lists
  class Lock;

  explicit SlotHeap(std::size_t room, std::size_t mapped, HeapSource source) noexcept;
  [[nodiscard]] Tree& tree() noexcept;
  [[nodiscard]] bool holds(const void* block) const noexcept;
  [[nodiscard]] bool keeps() const noexcept {
    return keeps_.load(std::memory_order_relaxed);  // relaxed: see keep_freed()
  }
  /// The same as the public ones, under the lock if there is one.
  void* take(std::size_t bytes, std::size_t alignment, bool zeroed) noexcept;
  [[nodiscard]] bool give(void* block) noexcept;
  bool resize_in_place(void* block, std::size_t usable, std::size_t bytes) noexcept;
  void* take_listed(std::size_t bytes) noexcept;
  void* take_behind(std::size_t bytes, std::size_t alignment) noexcept;
  void clear(char* block, std::size_t bytes) noexcept;
  void touched(const void* block, std::size_t beyond) noexcept;
  bool grow(std::size_t bytes) noexcept;
  void collect() noexcept;
  void empty_lists() noexcept;

  std::atomic<std::size_t> mapped_;
  std::atomic<bool> sleeps_{false};
  alignas(64) std::size_t room_;
  HeapSource source_;
  std::size_t fresh_ = 0;  // offset
  bool shared_ = false;
  std::atomic<bool> keeps_{false};
  std::atomic<bool> locked_{false};
  alignas(64) std::atomic<Freed*> outside_{nullptr};
  alignas(64) std::array<List, list_count> lists_{};
};

/// Owner of a cell's heap, which is made when it is first asked for.
class CellHeap {
 public:
  CellHeap() = default;
  ~CellHeap();
  CellHeap(const CellHeap&) = delete;
  CellHeap& operator=(const CellHeap&) = delete;

  /// `cell`: its slot's number. Null when it cannot be made; errno says why. Call from: flows of the cell.
  SlotHeap* get(std::uint32_t cell, HeapSource source = {}) noexcept {
    return get(SlotPlan::heap_of(cell), SlotPlan::heap_bytes(), source);
  }
  /// The same, made in the `room` bytes at `place`.
  SlotHeap* get(char* place, std::size_t room, HeapSource source = {}) noexcept;
  /// Null: not made yet. Call from: any thread.
  [[nodiscard]] SlotHeap* made() const noexcept {
    return heap_.load(std::memory_order_acquire);  // pairs with get(): its state
  }
  /// Leaves it mapped for ever: threads of programs go on.
  void abandon() noexcept { heap_.store(nullptr, std::memory_order_relaxed); }

 private:
  std::atomic<SlotHeap*> heap_{nullptr};
  std::mutex making_;
};

}  // namespace aplib
