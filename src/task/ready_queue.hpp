// SPDX-License-Identifier: MIT
// ReadyQueue: tasks that can run, first in, first out. It is intrusive (Item::next), and one processor uses it.
#pragma once

#include <atomic>
#include <cstddef>

namespace aplib {

template <class Item>
class ReadyQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  /// Any thread: elsewhere than in the processor it is a snapshot.
  [[nodiscard]] std::size_t size() const noexcept {
    return size_.load(std::memory_order_relaxed);
  }  // relaxed: a measure

  void push(Item& item) noexcept {
    item.next = nullptr;
    (head_ != nullptr ? tail_->next : head_) = &item;
    tail_ = &item;
    count(size() + 1);
  }

  Item* pop() noexcept {
    Item* item = head_;
    if (item != nullptr) {
      head_ = item->next;
      count(size() - 1);
    }
    return item;
  }

  /// Moves every item that `wanted` accepts to the end of `to`, keeping the order. Linear.
  template <class Predicate>
  void split_to(ReadyQueue& to, Predicate wanted) noexcept {
    ReadyQueue stay;
    while (Item* item = pop()) (wanted(*item) ? to : stay).push(*item);
    head_ = stay.head_;
    tail_ = stay.tail_;
    count(stay.size());
  }

  /// The youngest item `accepts` agrees with, or null. Linear.
  template <class Predicate>
  [[nodiscard]] Item* last_of(Predicate accepts) const noexcept {
    Item* found = nullptr;
    for (Item* item = head_; item != nullptr; item = item->next) {
      if (accepts(*item)) found = item;
    }
    return found;
  }

 private:
  void count(std::size_t size) noexcept { size_.store(size, std::memory_order_relaxed); }  // relaxed: one writer

  Item* head_ = nullptr;
  Item* tail_ = nullptr;
  std::atomic<std::size_t> size_{0};
};

}  // namespace aplib
