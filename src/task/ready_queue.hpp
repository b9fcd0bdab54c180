// SPDX-License-Identifier: MIT
// ReadyQueue: tasks that can run, first in, first out. It is intrusive (Item::next), and one processor uses it.
#pragma once

#include <atomic>

namespace aplib {

template <class Item>
class ReadyQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return first() == nullptr; }
  [[nodiscard]] bool has_several() const noexcept { return !empty() && first() != tail_; }
  /// Any thread: elsewhere than in the processor it is a snapshot, and the item may be gone. A count of the items would
  /// be kept up at every switch, for one who asks once.
  [[nodiscard]] const Item* glimpse() const noexcept {
    return head_.load(std::memory_order_acquire);  // acquire: the item's making
  }

  void push(Item& item) noexcept {
    item.next = nullptr;
    if (empty()) {
      begin_with(&item);
    } else {
      tail_->next = &item;
    }
    tail_ = &item;
  }

  Item* pop() noexcept {
    Item* item = first();
    if (item != nullptr) begin_with(item->next);
    return item;
  }

  /// Moves every item that `wanted` accepts to the end of `to`, keeping the order. Linear.
  template <class Predicate>
  void split_to(ReadyQueue& to, Predicate wanted) noexcept {
    ReadyQueue stay;
    while (Item* item = pop()) (wanted(*item) ? to : stay).push(*item);
    begin_with(stay.first());
    tail_ = stay.tail_;
  }

  /// The youngest item `accepts` agrees with, or null. Linear.
  template <class Predicate>
  [[nodiscard]] Item* last_of(Predicate accepts) const noexcept {
    Item* found = nullptr;
    for (Item* item = first(); item != nullptr; item = item->next) {
      if (accepts(*item)) found = item;
    }
    return found;
  }

 private:
  [[nodiscard]] Item* first() const noexcept { return head_.load(std::memory_order_relaxed); }  // relaxed: own value
  void begin_with(Item* item) noexcept { head_.store(item, std::memory_order_release); }        // release: to glimpse()

  std::atomic<Item*> head_{nullptr};
  Item* tail_ = nullptr;
};

}  // namespace aplib
