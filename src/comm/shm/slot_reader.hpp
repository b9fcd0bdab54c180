// SPDX-License-Identifier: MIT
// SlotReader: the receiving end of another process's segment. See segment.hpp for the invariants.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/shm/segment.hpp"

namespace aplib::comm::shm {

/// A slot as it was when it was copied.
struct SlotCopy {
  std::uint32_t what = 0;
  Label label;
  std::byte inline_body[inline_bytes_max];

  [[nodiscard]] SlotKind kind() const noexcept { return static_cast<SlotKind>(what >> 24U); }
  [[nodiscard]] std::size_t bytes() const noexcept { return what & 0xff'ffffU; }
};

/// Thread safety: one thread at a time, but has_next().
class SlotReader {
 public:
  void attach(Segment& mine, const Segment& theirs) noexcept {
    mine_ = &mine;
    theirs_ = &theirs;
  }

  /// Is there a slot? Any thread.
  [[nodiscard]] bool has_next() const noexcept {
    const std::uint32_t slots = slots_.load(std::memory_order_relaxed);  // relaxed: others ask for a hint
    return theirs_->slots[slots % slot_count].turn.load(std::memory_order_acquire) == slots + 1;  // invariant (3)
  }

  /// The next slot; there is one.
  void copy(SlotCopy& into) const noexcept {
    const Slot& slot = theirs_->slots[slots_.load(std::memory_order_relaxed) % slot_count];  // relaxed: our own
    into.what = slot.what;
    into.label = slot.label;
    std::memcpy(into.inline_body, slot.body, sizeof into.inline_body);
  }

  /// Where the body of a slot that was copied lies, if it is not inline: at most piece_bytes_max bytes. It may change under the reader's eyes, when the peer breaks its word.
  [[nodiscard]] const std::byte* body(std::size_t bytes) const noexcept {
    return theirs_->bodies + std::size_t{place(bytes) % units_count} * unit_bytes;
  }

  /// Done with that slot and its body.
  void pop(std::size_t bytes) noexcept {
    if (bytes > inline_bytes_max) units_ = place(bytes) + units(bytes);
    slots_.store(slots_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // relaxed: our own
  }

  /// Enough was taken that the writer should hear of it soon.
  [[nodiscard]] bool owes() const noexcept {
    return slots_.load(std::memory_order_relaxed) - slots_given_ >= slot_count / 4 ||
           units_ - units_given_ >= units_count / 4;
  }

  /// Gives back all that was taken. False: there was nothing.
  bool settle() noexcept {
    const std::uint32_t slots = slots_.load(std::memory_order_relaxed);  // relaxed: our own
    if (slots == slots_given_) return false;
    slots_given_ = slots;
    units_given_ = units_;
    mine_->taken.store(std::uint64_t{units_} << 32U | slots, std::memory_order_release);  // invariant (4)
    return true;
  }

 private:
  static constexpr std::uint32_t unit_bytes = cache_line_bytes;
  static constexpr std::uint32_t units_count = bodies_bytes / unit_bytes;

  static std::uint32_t units(std::size_t bytes) noexcept {
    return static_cast<std::uint32_t>((bytes + unit_bytes - 1) / unit_bytes);
  }
  /// Invariant (5).
  [[nodiscard]] std::uint32_t place(std::size_t bytes) const noexcept {
    const std::uint32_t in_lap = units_ % units_count;
    return in_lap + units(bytes) <= units_count ? units_ : units_ + (units_count - in_lap);
  }

  Segment* mine_ = nullptr;
  const Segment* theirs_ = nullptr;
  std::atomic<std::uint32_t> slots_{0};
  std::uint32_t units_ = 0;
  std::uint32_t slots_given_ = 0;
  std::uint32_t units_given_ = 0;
};

}  // namespace aplib::comm::shm
