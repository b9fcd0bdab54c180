// SPDX-License-Identifier: MIT
// Ring: carries messages from one processor to another. It has one producer, one consumer and a fixed size. An entry
// is one cache line, and holds a whole small message.
//
//   producer: if (Entry* s = ring.prepare()) { fill *s; ring.publish(); }
//   consumer: if (Entry* s = ring.peek()) { use *s; ring.pop(); }
//
// Invariants:
//  (1) Position p lives in entry p % entry_count. An entry's turn is p+1 once position p is published in it. Positions
//      count modulo 2^32.
//  (2) The producer writes the entry of position p only when consumed_ >= p - entry_count + 1, that is, after the
//      consumer has given the entry back.
//  (3) All other fields of an entry are written before its turn (release) and read after it (acquire).
//  (4) The consumer stores consumed_ after its last read of the entries below it (release). The producer reads it with
//      acquire before it writes them again.
// Progress: both sides are wait-free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "arch/cpu.hpp"

namespace aplib {

template <template <class> class Atom = std::atomic, std::uint32_t EntryCount = 256>
class Ring {
  static_assert((EntryCount & (EntryCount - 1)) == 0, "positions wrap modulo 2^32");

 public:
  static constexpr std::uint32_t entry_count = EntryCount;
  static constexpr std::size_t inline_bytes_max = 40;

  struct alignas(cache_line_bytes) Entry {
    Atom<std::uint32_t> turn{0};  // invariant (1)
    std::uint32_t info;           // kind and, for inline messages, length; the ring does not look at it
    std::uint64_t key;            // match key
    std::uint32_t cell;           // destination cell
    std::uint32_t task;           // destination task
    alignas(8) std::byte payload[inline_bytes_max];
  };

  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// Producer: the entry to fill next, or null when the ring is full.
  Entry* prepare() noexcept {
    if (produced_ - consumed_seen_ == EntryCount) {
      consumed_seen_ = consumed_.load(std::memory_order_acquire);  // invariant (4)
      if (produced_ - consumed_seen_ == EntryCount) return nullptr;
    }
    return &entries_[produced_ % EntryCount];
  }

  /// Producer: makes the entry of prepare() visible.
  void publish() noexcept {
    Entry& entry = entries_[produced_ % EntryCount];
    ++produced_;
    entry.turn.store(produced_, std::memory_order_release);  // invariant (3)
  }

  /// Producer: how many entries it has published so far (modulo 2^32).
  [[nodiscard]] std::uint32_t produced() const noexcept { return produced_; }

  /// Producer: how many entries the consumer has given back, as far as known (modulo 2^32). The number grows while
  /// someone takes messages.
  [[nodiscard]] std::uint32_t consumed() noexcept {
    consumed_seen_ = consumed_.load(std::memory_order_acquire);  // invariant (4)
    return consumed_seen_;
  }

  /// Producer: the consumer has taken everything below `position`, which produced() gave.
  [[nodiscard]] bool consumed_up_to(std::uint32_t position) noexcept {
    if (static_cast<std::int32_t>(consumed_seen_ - position) >= 0) return true;
    consumed_seen_ = consumed_.load(
        std::memory_order_acquire);  // pairs with settle(): what the consumer did with those entries is visible
    return static_cast<std::int32_t>(consumed_seen_ - position) >= 0;
  }

  /// Consumer: the oldest entry, or null when there is none.
  Entry* peek() noexcept {
    Entry& entry = entries_[taken_ % EntryCount];
    if (entry.turn.load(std::memory_order_acquire) != taken_ + 1) return nullptr;  // invariant (3)
    return &entry;
  }

  /// Consumer: takes several entries in a row, and begins to fetch those that come next.
  void fetch_ahead() const noexcept { fetch_line(&entries_[(taken_ + fetched_ahead) % EntryCount]); }

  /// Consumer: gives back the entry of peek(). The producer learns of it in batches, and at settle().
  void pop() noexcept {
    ++taken_;
    if (taken_ - given_back_ >= EntryCount / 4) settle();
  }

  /// Consumer: tells the producer of everything taken so far. REQUIRES: called when the ring is found empty.
  void settle() noexcept {
    if (given_back_ == taken_) return;
    given_back_ = taken_;
    consumed_.store(taken_, std::memory_order_release);  // invariant (4)
  }

 private:
  static constexpr std::uint32_t fetched_ahead = 2;  // the producer may be writing the next one

  // producer only
  alignas(cache_pair_bytes) std::uint32_t produced_ = 0;
  std::uint32_t consumed_seen_ = 0;
  // consumer only
  alignas(cache_pair_bytes) std::uint32_t taken_ = 0;
  std::uint32_t given_back_ = 0;
  // written by the consumer, read by the producer
  alignas(cache_pair_bytes) Atom<std::uint32_t> consumed_{0};
  alignas(cache_pair_bytes) Entry entries_[EntryCount];
};

/// The rings that lead to one processor. The senders make them, at any time.
///
/// Invariants: (1) a ring is stored before it is counted (release, acquire); (2) whoever connects a ring wakes the
/// owner after putting in the first message, so an owner that compares the count before it sleeps misses no ring.
template <class RingType, template <class> class Atom = std::atomic>
class RingTable {
 public:
  struct Incoming {
    RingType* ring;
    std::uint32_t from;
  };

  /// Before any processor runs.
  void prepare(std::size_t processors) {
    size_ = processors;
    table_ = std::make_unique<Atom<RingType*>[]>(processors);
  }
  /// Another processor: `ring` leads here.
  void connect(std::uint32_t from, RingType& ring) noexcept {
    table_[from].store(&ring, std::memory_order_release);  // release: the ring's construction
    count_.fetch_add(1, std::memory_order_release);        // invariant (1)
  }

  // Owner:
  [[nodiscard]] bool has_some() const noexcept { return count_.load(std::memory_order_acquire) != 0; }  // (1)
  /// There are rings that rings() lacks.
  [[nodiscard]] bool has_new() const noexcept { return known_ != count_.load(std::memory_order_acquire); }  // (1)
  [[nodiscard]] const std::vector<Incoming>& rings() const noexcept { return rings_; }
  /// Renews rings(). Throws std::bad_alloc.
  void refresh() {
    known_ = count_.load(std::memory_order_acquire);  // invariant (1)
    rings_.clear();
    for (std::uint32_t from = 0; from < size_; ++from) {
      RingType* ring = table_[from].load(std::memory_order_acquire);  // acquire: the ring itself
      if (ring != nullptr) rings_.push_back(Incoming{ring, from});
    }
  }
  [[nodiscard]] bool all_empty() const noexcept {
    for (const Incoming& in : rings_) {
      if (in.ring->peek() != nullptr) return false;
    }
    return true;
  }

 private:
  std::uint32_t known_ = 0;
  std::vector<Incoming> rings_;
  std::size_t size_ = 0;
  std::unique_ptr<Atom<RingType*>[]> table_;  // by processor
  alignas(cache_pair_bytes) Atom<std::uint32_t> count_{0};
};

}  // namespace aplib
