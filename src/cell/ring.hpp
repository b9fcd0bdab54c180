// SPDX-License-Identifier: MIT
// Ring: carries messages from one processor to another. It has one producer, one consumer and a fixed number of slots.
// A slot is one cache line, and holds a whole small message.
//
//   producer: if (Slot* s = ring.prepare()) { fill *s; ring.publish(); }
//   consumer: if (Slot* s = ring.peek()) { use *s; ring.pop(); }
//
// Invariants:
//  (1) Position p lives in slot p % slot_count. A slot's turn is p+1 once position p is published in it. Positions
//      count modulo 2^32.
//  (2) The producer writes the slot of position p only when consumed_ >= p - slot_count + 1, that is, after the
//      consumer has given the slot back.
//  (3) All other fields of a slot are written before its turn (release) and read after it (acquire).
//  (4) The consumer stores consumed_ after its last read of the slots below it (release). The producer reads it with
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

template <template <class> class Atom = std::atomic, std::uint32_t SlotCount = 256>
class Ring {
  static_assert((SlotCount & (SlotCount - 1)) == 0, "positions wrap modulo 2^32");

 public:
  static constexpr std::uint32_t slot_count = SlotCount;
  static constexpr std::size_t inline_bytes_max = 40;

  struct alignas(cache_line_bytes) Slot {
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

  /// Producer: the slot to fill next, or null when the ring is full.
  Slot* prepare() noexcept {
    if (produced_ - consumed_seen_ == SlotCount) {
      consumed_seen_ = consumed_.load(std::memory_order_acquire);  // invariant (4)
      if (produced_ - consumed_seen_ == SlotCount) return nullptr;
    }
    return &slots_[produced_ % SlotCount];
  }

  /// Producer: makes the slot of prepare() visible.
  void publish() noexcept {
    Slot& slot = slots_[produced_ % SlotCount];
    ++produced_;
    slot.turn.store(produced_, std::memory_order_release);  // invariant (3)
  }

  /// Producer: how many slots it has published so far (modulo 2^32).
  [[nodiscard]] std::uint32_t produced() const noexcept { return produced_; }

  /// Producer: how many slots the consumer has given back, as far as known (modulo 2^32). The number grows while
  /// someone takes messages.
  [[nodiscard]] std::uint32_t consumed() noexcept {
    consumed_seen_ = consumed_.load(std::memory_order_acquire);  // invariant (4)
    return consumed_seen_;
  }

  /// Producer: the consumer has taken everything below `position`, which produced() gave.
  [[nodiscard]] bool consumed_up_to(std::uint32_t position) noexcept {
    if (static_cast<std::int32_t>(consumed_seen_ - position) >= 0) return true;
    consumed_seen_ = consumed_.load(
        std::memory_order_acquire);  // pairs with settle(): what the consumer did with those slots is visible
    return static_cast<std::int32_t>(consumed_seen_ - position) >= 0;
  }

  /// Consumer: the oldest slot, or null when there is none.
  Slot* peek() noexcept {
    Slot& slot = slots_[taken_ % SlotCount];
    if (slot.turn.load(std::memory_order_acquire) != taken_ + 1) return nullptr;  // invariant (3)
    return &slot;
  }

  /// Consumer: gives back the slot of peek(). The producer learns of it in batches, and at settle().
  void pop() noexcept {
    ++taken_;
    if (taken_ - given_back_ >= SlotCount / 4) settle();
  }

  /// Consumer: tells the producer of everything taken so far. REQUIRES: called when the ring is found empty.
  void settle() noexcept {
    if (given_back_ == taken_) return;
    given_back_ = taken_;
    consumed_.store(taken_, std::memory_order_release);  // invariant (4)
  }

 private:
  // producer only
  alignas(cache_pair_bytes) std::uint32_t produced_ = 0;
  std::uint32_t consumed_seen_ = 0;
  // consumer only
  alignas(cache_pair_bytes) std::uint32_t taken_ = 0;
  std::uint32_t given_back_ = 0;
  // written by the consumer, read by the producer
  alignas(cache_pair_bytes) Atom<std::uint32_t> consumed_{0};
  alignas(cache_pair_bytes) Slot slots_[SlotCount];
};

/// The rings that lead to one processor. The senders make them, at any time.
///
/// Invariants: (1) an entry is stored before it is counted (release, acquire); (2) whoever connects a ring wakes the
/// owner after putting in the first message, so an owner that compares the count before it sleeps misses no ring.
template <class RingType, template <class> class Atom = std::atomic>
class RingTable {
 public:
  struct Entry {
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
  [[nodiscard]] bool has_some() const noexcept { return known_ != 0 || has_new(); }
  /// There are rings that entries() lacks.
  [[nodiscard]] bool has_new() const noexcept { return known_ != count_.load(std::memory_order_acquire); }  // (1)
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// Renews entries(). Throws std::bad_alloc.
  void refresh() {
    known_ = count_.load(std::memory_order_acquire);  // invariant (1)
    entries_.clear();
    for (std::uint32_t from = 0; from < size_; ++from) {
      RingType* ring = table_[from].load(std::memory_order_acquire);  // acquire: the ring itself
      if (ring != nullptr) entries_.push_back(Entry{ring, from});
    }
  }
  [[nodiscard]] bool all_empty() const noexcept {
    for (const Entry& entry : entries_) {
      if (entry.ring->peek() != nullptr) return false;
    }
    return true;
  }

 private:
  std::uint32_t known_ = 0;
  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  std::unique_ptr<Atom<RingType*>[]> table_;  // by processor
  alignas(cache_pair_bytes) Atom<std::uint32_t> count_{0};
};

}  // namespace aplib
