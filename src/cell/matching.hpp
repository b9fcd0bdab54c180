// SPDX-License-Identifier: MIT
// Matching: the 64-bit key of a message, the key and mask that a receive asks for, and the queue of messages that
// arrived before anyone asked. The queue knows nothing but "(key ^ wanted) & mask == 0".
//
// Key: 63..61 space | 60..44 source cell (index; the host is the cell count) | 43..24 source task | 23..0 type
// In the spaces of MPI, 43 asks for a receipt | 42..28 context | 27..0 tag. The core reads the space, the cell and, of
// a message that it gives to a request, bit 43.
#pragma once

#include <algorithm>
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

/// The layout of MPI's spaces.
struct ContextKey {
  static constexpr int context_shift = 28;
  static constexpr std::uint32_t context_max = 0x7fff;
  static constexpr std::uint32_t receipt_flag = 0x8000;  ///< Added to a context: the message asks for a receipt.
  static constexpr std::uint32_t tag_max = 0xfff'ffff;
  static constexpr std::uint64_t context_mask = std::uint64_t{context_max} << context_shift;
  static constexpr std::uint64_t receipt_mask = std::uint64_t{receipt_flag} << context_shift;  ///< Of no wish.
  static constexpr std::uint64_t tag_mask = tag_max;
  static constexpr std::uint32_t rank_space = 2;        ///< Messages from rank to rank.
  static constexpr std::uint32_t collective_space = 3;  ///< Those of collectives.
  static constexpr std::uint32_t receipt_space = 4;
  static_assert((context_mask | receipt_mask | tag_mask) == (MatchKey::task_mask | MatchKey::type_mask));

  /// `context`: with or without receipt_flag.
  static constexpr std::uint64_t make(std::uint32_t space, std::uint32_t cell, std::uint32_t context,
                                      std::uint32_t tag) noexcept {
    return MatchKey::make(space, cell, 0, 0) | std::uint64_t{context} << context_shift | tag;
  }
  static constexpr std::uint32_t context(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>((key & context_mask) >> context_shift);
  }
  static constexpr std::uint32_t tag(std::uint64_t key) noexcept { return static_cast<std::uint32_t>(key & tag_mask); }
  static constexpr bool is_from_rank_to_rank(std::uint64_t key) noexcept {
    return key >> MatchKey::space_shift == rank_space;
  }
  static constexpr bool is_of_mpi(std::uint64_t key) noexcept {
    const std::uint64_t space = key >> MatchKey::space_shift;
    return space >= rank_space && space <= receipt_space;
  }
  static constexpr bool asks_for_receipt(std::uint64_t key) noexcept { return (key & receipt_mask) != 0; }
  /// Of the receipt that `cell` gives for a message.
  static constexpr std::uint64_t receipt(std::uint64_t key, std::uint32_t cell) noexcept {
    return make(receipt_space, cell, context(key), tag(key));
  }
};

/// What a receive accepts: every message whose key agrees with `key` in the bits of `mask`.
struct MatchWish {
  std::uint64_t key = 0;
  std::uint64_t mask = 0;
  [[nodiscard]] constexpr bool accepts(std::uint64_t arrived) const noexcept { return ((arrived ^ key) & mask) == 0; }
  friend constexpr bool operator==(const MatchWish&, const MatchWish&) = default;
};

/// Messages in order of arrival, taken by key and mask. One per task; used only by the processor that carries the
/// cell, so nothing here is atomic.
///
/// Entry is an intrusive node: { Entry* next; Entry* previous; Entry* bucket_next; Entry* bucket_previous;
/// std::uint64_t key; }.
///
/// A short queue is scanned. A long one, of index_from entries and more, has an index until it is empty again: a wish
/// that names the source cell looks at the cell's bucket alone, and a wish that has passed many entries over goes on
/// behind them next time. So a task that asks again and again for the same looks at each message once, however many
/// others wait.
///
/// Invariants: (1) the list holds all entries in order of arrival; (2) when index_ exists, every entry is also in the
/// bucket of its source cell, in order of arrival; (3) the oldest entry that a wish accepts is the one taken; (4) a
/// mark's wish accepts no entry up to and including `passed`, in the list or, where it names the cell, in its bucket:
/// entries only join at the end.
template <class Entry>
class MatchQueue {
 public:
  static constexpr std::size_t index_from = 32;
  static constexpr std::size_t bucket_count = 64;
  static constexpr std::size_t mark_count = 8;  // kinds of wishes that alternate
  static constexpr std::size_t mark_from = 8;   // entries passed over that are worth a mark

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
    if (index_ != nullptr) {
      add_to_bucket(entry);
    } else if (size_ >= index_from) {
      make_index();
    }
  }

  /// The oldest entry that `wish` accepts, or null. Leaves it in the queue.
  [[nodiscard]] Entry* find(const MatchWish& wish) const noexcept {
    if (head_ == nullptr || wish.accepts(head_->key)) return head_;
    if (index_ != nullptr) return find_by_index(wish);
    for (Entry* e = head_->next; e != nullptr; e = e->next) {
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
    if (index_ == nullptr) return;
    for (Mark* mark = index_->mark; mark != index_->end; ++mark) {
      if (mark->passed == &entry) mark->passed = mark->by_cell ? entry.bucket_previous : entry.previous;
    }
    Bucket& bucket = index_->bucket_of(entry.key);
    (entry.bucket_previous != nullptr ? entry.bucket_previous->bucket_next : bucket.head) = entry.bucket_next;
    (entry.bucket_next != nullptr ? entry.bucket_next->bucket_previous : bucket.tail) = entry.bucket_previous;
    if (size_ == 0) index_.reset();
  }

 private:
  struct Bucket {
    Entry* head = nullptr;
    Entry* tail = nullptr;
  };
  /// How far a wish has looked.
  struct Mark {
    MatchWish wish;
    bool by_cell = false;
    Entry* passed = nullptr;  // invariant (4); null: none
  };
  struct Index {
    [[nodiscard]] Bucket& bucket_of(std::uint64_t key) noexcept { return bucket[MatchKey::cell(key) % bucket_count]; }
    /// The mark of a wish; null: it has none.
    [[nodiscard]] Mark* find(const MatchWish& wish) noexcept {
      Mark* const found = std::find_if(mark, end, [&](const Mark& m) { return m.wish == wish; });
      return found != end ? found : nullptr;
    }
    /// A mark for a wish that has none: a new one, or another's, in turn.
    [[nodiscard]] Mark& make(const MatchWish& wish, bool by_cell) noexcept {
      Mark& made = end != mark + mark_count ? *end++ : mark[next++ % mark_count];
      made = {wish, by_cell, nullptr};
      return made;
    }

    Bucket bucket[bucket_count];
    Mark mark[mark_count];
    Mark* end = mark;      // of those in use
    std::size_t next = 0;  // to be given to another wish
  };

  [[nodiscard, gnu::noinline]] Entry* find_by_index(const MatchWish& wish) const noexcept {
    const bool by_cell = (wish.mask & MatchKey::cell_mask) == MatchKey::cell_mask;
    const auto next = [by_cell](const Entry& e) { return by_cell ? e.bucket_next : e.next; };
    Mark* mark = index_->find(wish);
    Entry* passed = mark != nullptr ? mark->passed : nullptr;
    Entry* e = passed != nullptr ? next(*passed) : by_cell ? index_->bucket_of(wish.key).head : head_;
    std::size_t count = 0;
    for (; e != nullptr && !wish.accepts(e->key); e = next(*e), ++count) passed = e;
    if (mark == nullptr && count >= mark_from) mark = &index_->make(wish, by_cell);
    if (mark != nullptr) mark->passed = passed;
    return e;
  }

  [[gnu::noinline]] void make_index() noexcept {
    index_.reset(new (std::nothrow) Index);
    if (index_ == nullptr) return;  // no memory: it is scanned, and tries again at the next message
    for (Entry* e = head_; e != nullptr; e = e->next) add_to_bucket(*e);
  }

  void add_to_bucket(Entry& entry) noexcept {
    Bucket& bucket = index_->bucket_of(entry.key);
    entry.bucket_next = nullptr;
    entry.bucket_previous = bucket.tail;
    (bucket.tail != nullptr ? bucket.tail->bucket_next : bucket.head) = &entry;
    bucket.tail = &entry;
  }

  Entry* head_ = nullptr;
  Entry* tail_ = nullptr;
  std::size_t size_ = 0;
  std::unique_ptr<Index> index_;
};

}  // namespace aplib
