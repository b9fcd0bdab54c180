// SPDX-License-Identifier: MIT
// FreeList: what is free of some items of one kind, each of which is made and unmade elsewhere. It holds their
// addresses, so that an item which another processor has just used is not touched. The last one put back is taken
// first.
//
// Invariant: there is room for all items, so putting one back does not throw.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

namespace aplib {

template <class Item>
class FreeList {
 public:
  [[nodiscard]] bool empty() const noexcept { return free_ == 0; }
  /// REQUIRES: one is free.
  Item* pop() noexcept { return items_[--free_]; }
  void push(Item* item) noexcept { items_[free_++] = item; }

  /// Makes room for so many more items than there are. Throws std::bad_alloc.
  void make_room(std::size_t more) {
    if (all_ + more <= room_) return;
    const std::size_t room = std::max(all_ + more, 2 * room_);
    auto items = std::make_unique<Item*[]>(room);
    std::copy_n(items_.get(), free_, items.get());
    items_ = std::move(items);
    room_ = room;
  }
  /// So many have been made, for which there is room.
  void made(std::size_t count) noexcept { all_ += count; }
  /// One that was free is no more.
  void unmade() noexcept { --all_; }

 private:
  std::unique_ptr<Item*[]> items_;
  std::size_t free_ = 0;
  std::size_t all_ = 0;
  std::size_t room_ = 0;
};

}  // namespace aplib
