// SPDX-License-Identifier: MIT
// HeapCaller: who calls malloc or its kin: where its memory lies, and the account that it is counted in.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "loader/libc/caller.hpp"
#include "loader/libc/heap.hpp"
#include "loader/slot_blocks.hpp"
#include "memory/slot_heap.hpp"

namespace aplib::loader {

struct HeapAccount {
  std::mutex mutex;
  HeapUse use;
  // Blocks are remembered: shared libraries free and take some without us, and a block of theirs must not be subtracted.
  std::unordered_map<const void*, std::size_t> blocks;

  void add(const void* block, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    const auto [place, fresh] = blocks.try_emplace(block, bytes);
    if (fresh) {
      ++use.blocks;
    } else {
      use.bytes -= static_cast<std::int64_t>(place->second);  // somebody else has freed it meanwhile
      place->second = bytes;
    }
    use.bytes += static_cast<std::int64_t>(bytes);
    use.peak = std::max(use.peak, use.bytes);
    ++use.calls;
  }
  void remove(const void* block) {
    const std::lock_guard lock(mutex);
    const auto place = blocks.find(block);
    if (place == blocks.end()) return;
    use.bytes -= static_cast<std::int64_t>(place->second);
    --use.blocks;
    blocks.erase(place);
  }
};

namespace libc {

inline std::size_t usable_bytes(void* block) noexcept {
  return is_slot_block(block) ? SlotHeap::usable_bytes(block) : ::malloc_usable_size(block);
}

inline void free_block(void* block) noexcept {
  if (is_slot_block(block)) {
    free_slot_block(block);
  } else {
    std::free(block);
  }
}

/// The heap of the running flow's cell, if it is to be used without further ado; for what is called often.
inline SlotHeap* heap_at_hand() noexcept {
  const TaskContext* const context = here();
  return context != nullptr ? context->instance->uncounted_heap() : nullptr;
}

/// Lives for the time of one call. `caller`: as for calling().
class HeapCaller {
 public:
  explicit HeapCaller(const void* caller) {
    TaskContext* const context = here();
    Instance* const instance = context != nullptr ? context->instance : calling(caller);
    if (instance == nullptr) return;
    if (instance->program().options().account_heap) account_ = &shared_part(instance->libc().heap);
    // Threads made behind our back may run beside the cell's flows: for them it is libc.
    if (context == nullptr || !instance->program().has_slot_heap()) return;
    in_slot_ = true;
    heap_ = instance->slot_heap();
  }

  [[nodiscard]] bool in_slot() const noexcept { return in_slot_; }
  /// In the slot. Null, with errno set: no room.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = SlotHeap::alignment_min) const noexcept {
    if (heap_ != nullptr) [[likely]]
      return alignment <= SlotHeap::alignment_min ? heap_->allocate(bytes) : heap_->allocate(bytes, alignment);
    errno = ENOMEM;
    return nullptr;
  }
  [[nodiscard]] void* allocate_zeroed(std::size_t count, std::size_t bytes) const noexcept {
    std::size_t whole = 0;
    if (heap_ != nullptr && !__builtin_mul_overflow(count, bytes, &whole)) [[likely]]
      return heap_->allocate_zeroed(whole);
    errno = ENOMEM;
    return nullptr;
  }

  /// Counts `block`, if there is one, and returns it.
  template <class T>
  T* taken(T* block) const {
    if (account_ != nullptr && block != nullptr) [[unlikely]] {
      const int error = errno;
      account_->add(block, usable_bytes(block));
      errno = error;
    }
    return block;
  }
  /// Before it is freed: afterwards another thread may take it.
  void* freed(void* block) const {
    if (account_ != nullptr && block != nullptr) [[unlikely]] {
      const int error = errno;
      account_->remove(block);
      errno = error;
    }
    return block;
  }

 private:
  HeapAccount* account_ = nullptr;
  SlotHeap* heap_ = nullptr;
  bool in_slot_ = false;
};

}  // namespace libc
}  // namespace aplib::loader
