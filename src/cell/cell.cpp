// SPDX-License-Identifier: MIT
#include "cell/cell.hpp"

#include <algorithm>
#include <cstring>

#include "aplib/ids.hpp"
#include "arch/cpu.hpp"
#include "base/spin_lock.hpp"
#include "cell/baton.hpp"

namespace aplib {

std::optional<std::uint32_t> TaskTable::add_id() {
  const auto id = std::max(static_cast<std::uint32_t>(tasks_.size()), 1U);  // 0 is the cell program's
  grow(id);
  return id;
}

void TaskTable::grow(std::uint32_t id) {
  const auto first = std::max(static_cast<std::uint32_t>(tasks_.size()), 1U);
  const std::size_t size = std::size_t{id} + 1;
  if (size > rests_before_.capacity()) rests_before_.reserve(std::max(size, 2 * rests_before_.size()));
  tasks_.resize(size);
  rests_before_.resize(size, rests_not);
  for (std::uint32_t unused = first; unused < id; ++unused) give_back(unused);
}

void BroadcastPlace::show(const void* source, std::size_t size) {
  bytes = source;
  if (size > staged_bytes_max || size == 0) return;
  if (stage == nullptr) stage = std::make_unique<char[]>(staged_bytes_max);
  copy_long(stage.get(), source, size);
  bytes = stage.get();
}

// Own count before the look at stopping, which the root has seen before it looks at the count: one of the two sees the
// other.
void BroadcastPlace::copy_to(void* buffer, std::size_t size, const std::atomic<bool>& stopping) noexcept {
  if (size <= staged_bytes_max) {
    copy_long(buffer, bytes, size);
    return;
  }
  readers.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with await_readers()
  if (!stopping.load(std::memory_order_relaxed)) copy_long(buffer, bytes, size);
  readers.fetch_sub(1, std::memory_order_release);  // release: what has been read
}

// Who reads on our own processor does not run now. A copy takes no longer than its bytes.
void BroadcastPlace::await_readers() const noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);                              // pairs with copy_to()
  for (SpinWait spin; readers.load(std::memory_order_acquire) != 0;) spin.pause();  // acquire: what has been read
}

Cell::~Cell() {
  // A thread that sleeps in a call keeps it.
  if (const Baton* const made = baton.load(std::memory_order_relaxed); made != nullptr && made->is_idle()) delete made;
  for (std::uint32_t id = 0; id < tasks.end(); ++id) {
    TaskControl* task = tasks.find(id);
    if (task == nullptr) continue;
    dispose_flow(*task);
    task->~TaskControl();  // its stack goes with the pool
  }
}

}  // namespace aplib
