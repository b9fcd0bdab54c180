// SPDX-License-Identifier: MIT
// Receives that wait for messages, in order of posting: a message belongs to the oldest receive that accepts its key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "cell/matching.hpp"

namespace aplib {

/// One per mailbox; used only by the processor that carries the cell, so nothing here is atomic.
///
/// Entry is an intrusive node: { Entry* next; Entry* previous; Entry* bucket_next; Entry* bucket_previous; MatchWish
/// wish; std::uint64_t order; std::uint8_t lane; }.
///
/// Most messages belong to the oldest receive, so that one is asked first, and nothing more is kept up for it. The
/// others are scanned while the queue is short. In one of index_from entries or more a message finds them by an index:
/// receives that name the same fields of the key share a lane, in which they are found by these fields. So a message
/// looks at one bucket of each lane in use, however many receives wait, and takes the oldest of what it finds there.
///
/// Invariants: (1) the list holds all entries in order of posting, which `order` numbers; (2) those before `fresh_` are
/// also in one bucket of their lanes, in order of posting, and the others, whose lane is no_lane, join them when a
/// message needs the index; (3) a lane's mask names no bit that the masks of its entries do not name: so a key and a
/// wish that accepts it lead to the same bucket; the first lane's mask names none.
template <class Entry>
class PostedQueue {
 public:
  static constexpr std::size_t index_from = 16;
  static constexpr std::size_t lane_count = 16;  // masks that differ; entries of more masks are in the first lane
  static constexpr int bucket_bits = 7;
  static constexpr std::uint8_t no_lane = 0xff;

  PostedQueue() = default;
  PostedQueue(const PostedQueue&) = delete;
  PostedQueue& operator=(const PostedQueue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Entry* oldest() const noexcept { return head_; }

  /// Appends. The queue does not own entries.
  void push(Entry& entry) noexcept {
    entry.order = next_order_++;
    entry.lane = no_lane;
    entry.next = nullptr;
    entry.previous = tail_;
    (tail_ != nullptr ? tail_->next : head_) = &entry;
    tail_ = &entry;
    if (fresh_ == nullptr) fresh_ = &entry;
    ++size_;
  }

  /// The oldest entry that accepts `key`, or null. Leaves it in the queue.
  [[nodiscard]] Entry* find(std::uint64_t key) noexcept {
    if (head_ == nullptr || head_->wish.accepts(key)) return head_;
    if (size_ >= index_from && has_index()) return find_by_index(key);
    Entry* e = head_->next;
    while (e != nullptr && !e->wish.accepts(key)) e = e->next;
    return e;
  }

  void remove(Entry& entry) noexcept {
    (entry.previous != nullptr ? entry.previous->next : head_) = entry.next;
    (entry.next != nullptr ? entry.next->previous : tail_) = entry.previous;
    if (fresh_ == &entry) fresh_ = entry.next;
    --size_;
    if (entry.lane == no_lane) return;
    Lane& lane = *index_->lanes[entry.lane];
    Bucket& bucket = lane.bucket_of(entry.wish.key);
    (entry.bucket_previous != nullptr ? entry.bucket_previous->bucket_next : bucket.head) = entry.bucket_next;
    (entry.bucket_next != nullptr ? entry.bucket_next->bucket_previous : bucket.tail) = entry.bucket_previous;
    --lane.size;
  }

 private:
  struct Bucket {
    Entry* head = nullptr;
    Entry* tail = nullptr;
  };
  struct Lane {
    explicit Lane(std::uint64_t named) : mask(named) {}
    [[nodiscard]] Bucket& bucket_of(std::uint64_t key) noexcept {
      constexpr std::uint64_t spread = 0x9e37'79b9'7f4a'7c15;  // neighbouring keys fall into different buckets
      return buckets[((key & mask) * spread) >> (64 - bucket_bits)];
    }
    std::uint64_t mask;
    std::size_t size = 0;
    std::array<Bucket, std::size_t{1} << bucket_bits> buckets{};
  };
  struct Index {
    std::array<std::unique_ptr<Lane>, lane_count> lanes;
    std::size_t in_use = 0;
  };

  [[nodiscard, gnu::noinline]] Entry* find_by_index(std::uint64_t key) noexcept {
    for (; fresh_ != nullptr; fresh_ = fresh_->next) add_to_bucket(*fresh_);
    Entry* found = nullptr;
    for (std::size_t i = 0; i < index_->in_use; ++i) {
      Lane& lane = *index_->lanes[i];
      if (lane.size == 0) continue;
      Entry* e = lane.bucket_of(key).head;
      while (e != nullptr && !e->wish.accepts(key)) e = e->bucket_next;
      if (e != nullptr && (found == nullptr || e->order < found->order)) found = e;
    }
    return found;
  }

  // Without memory the queue is scanned, and the next message tries again.
  [[nodiscard]] bool has_index() noexcept { return index_ != nullptr || make_index(); }
  [[gnu::noinline]] bool make_index() noexcept {
    std::unique_ptr<Index> made(new (std::nothrow) Index);
    if (made == nullptr) return false;
    made->lanes[0].reset(new (std::nothrow) Lane(0));
    if (made->lanes[0] == nullptr) return false;
    made->in_use = 1;
    index_ = std::move(made);
    return true;
  }

  void add_to_bucket(Entry& entry) noexcept {
    entry.lane = static_cast<std::uint8_t>(lane_of(entry.wish.mask));
    Lane& lane = *index_->lanes[entry.lane];
    Bucket& bucket = lane.bucket_of(entry.wish.key);
    entry.bucket_next = nullptr;
    entry.bucket_previous = bucket.tail;
    (bucket.tail != nullptr ? bucket.tail->bucket_next : bucket.head) = &entry;
    bucket.tail = &entry;
    ++lane.size;
  }

  /// The lane of this mask; the first when there is no room or no memory for another.
  std::size_t lane_of(std::uint64_t mask) noexcept {
    for (std::size_t i = 1; i < index_->in_use; ++i) {
      if (index_->lanes[i]->mask == mask) return i;
    }
    if (index_->in_use == lane_count) return 0;
    index_->lanes[index_->in_use].reset(new (std::nothrow) Lane(mask));
    return index_->lanes[index_->in_use] != nullptr ? index_->in_use++ : 0;
  }

  Entry* head_ = nullptr;
  Entry* tail_ = nullptr;
  Entry* fresh_ = nullptr;  // the oldest that is in no bucket
  std::size_t size_ = 0;
  std::uint64_t next_order_ = 0;
  std::unique_ptr<Index> index_;  // stays: who posted many posts many again
};

}  // namespace aplib
