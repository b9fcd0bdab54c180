// SPDX-License-Identifier: MIT
// Matching: the 64-bit key of a message, the key and mask that a receive asks for, and the queue of messages that
// arrived before anyone asked. The queue knows nothing but "(key ^ wanted) & mask == 0"; another front end may lay the
// bits out in its own way.
//
// Key: 63..61 space | 60..44 source cell (index; the host is the cell count) | 43..24 source task | 23..0 type
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "aplib/ids.hpp"

namespace aplib {

struct MatchKey {
  static constexpr int space_shift = 61;
  static constexpr int cell_shift = 44;
  static constexpr int task_shift = 24;
  static constexpr std::uint64_t space_mask = 0x7ULL << space_shift;
  static constexpr std::uint64_t cell_mask = 0x1'ffffULL << cell_shift;
  static constexpr std::uint64_t task_mask = 0xf'ffffULL << task_shift;
  static constexpr std::uint64_t type_mask = 0xff'ffffULL;

  static constexpr std::uint64_t make(std::uint32_t space, std::uint32_t cell, std::uint32_t task,
                                      std::uint32_t type) noexcept {
    return (std::uint64_t{space} << space_shift) | (std::uint64_t{cell} << cell_shift) |
           (std::uint64_t{task} << task_shift) | type;
  }
  static constexpr std::uint32_t cell(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>((key & cell_mask) >> cell_shift);
  }
  static constexpr std::uint32_t task(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>((key & task_mask) >> task_shift);
  }
  static constexpr std::uint32_t type(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>(key & type_mask);
  }
};

/// What a receive accepts: every message whose key agrees with `key` in the bits of `mask`.
struct MatchWish {
  std::uint64_t key = 0;
  std::uint64_t mask = 0;
  [[nodiscard]] constexpr bool accepts(std::uint64_t arrived) const noexcept { return ((arrived ^ key) & mask) == 0; }
};

/// Messages in order of arrival, taken by key and mask. One per task; used only by the processor that carries the
/// cell, so nothing here is atomic.
///
/// Entry is an intrusive node: { Entry* next; Entry* previous; Entry* bucket_next; Entry* bucket_previous;
/// std::uint64_t key; }.
///
/// Invariants: (1) the list holds all entries in order of arrival; (2) when buckets_ exists, every entry is also in
/// the bucket of its source cell, in order of arrival; (3) the oldest entry that a wish accepts is the one taken.
/// Short queues are scanned. From hash_from entries on, wishes that name the source cell look only at its bucket.
template <class Entry>
class MatchQueue {
 public:
  static constexpr std::size_t hash_from = 32;
  static constexpr std::size_t bucket_count = 64;

  MatchQueue() = default;
  MatchQueue(const MatchQueue&) = delete;
  MatchQueue& operator=(const MatchQueue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Entry* oldest() const noexcept { return head_; }

  /// Appends. The queue does not own entries.
  void push(Entry& entry) {
    entry.next = nullptr;
    entry.previous = tail_;
    (tail_ != nullptr ? tail_->next : head_) = &entry;
    tail_ = &entry;
    ++size_;
    if (buckets_ != nullptr) {
      add_to_bucket(entry);
    } else if (size_ >= hash_from) {
      buckets_.reset(new (std::nothrow) Bucket[bucket_count]);
      if (buckets_ == nullptr) return;  // no memory: it is scanned, and tries again at the next message
      for (Entry* e = head_; e != nullptr; e = e->next) add_to_bucket(*e);
    }
  }

  /// The oldest entry that `wish` accepts, or null. Leaves it in the queue.
  [[nodiscard]] Entry* find(const MatchWish& wish) const noexcept {
    if (buckets_ != nullptr && (wish.mask & MatchKey::cell_mask) == MatchKey::cell_mask) {
      for (Entry* e = buckets_[bucket_of(wish.key)].head; e != nullptr; e = e->bucket_next) {
        if (wish.accepts(e->key)) return e;
      }
      return nullptr;
    }
    for (Entry* e = head_; e != nullptr; e = e->next) {
      if (wish.accepts(e->key)) return e;
    }
    return nullptr;
  }

  /// Takes the oldest entry that `wish` accepts out of the queue, or returns null.
  Entry* take(const MatchWish& wish) noexcept {
    Entry* found = find(wish);
    if (found != nullptr) remove(*found);
    return found;
  }

  void remove(Entry& entry) noexcept {
    (entry.previous != nullptr ? entry.previous->next : head_) = entry.next;
    (entry.next != nullptr ? entry.next->previous : tail_) = entry.previous;
    --size_;
    if (buckets_ == nullptr) return;
    Bucket& bucket = buckets_[bucket_of(entry.key)];
    (entry.bucket_previous != nullptr ? entry.bucket_previous->bucket_next : bucket.head) = entry.bucket_next;
    (entry.bucket_next != nullptr ? entry.bucket_next->bucket_previous : bucket.tail) = entry.bucket_previous;
    if (size_ == 0) buckets_.reset();
  }

 private:
  struct Bucket {
    Entry* head = nullptr;
    Entry* tail = nullptr;
  };

  static std::size_t bucket_of(std::uint64_t key) noexcept { return MatchKey::cell(key) % bucket_count; }

  void add_to_bucket(Entry& entry) noexcept {
    Bucket& bucket = buckets_[bucket_of(entry.key)];
    entry.bucket_next = nullptr;
    entry.bucket_previous = bucket.tail;
    (bucket.tail != nullptr ? bucket.tail->bucket_next : bucket.head) = &entry;
    bucket.tail = &entry;
  }

  Entry* head_ = nullptr;
  Entry* tail_ = nullptr;
  std::size_t size_ = 0;
  std::unique_ptr<Bucket[]> buckets_;
};

}  // namespace aplib
