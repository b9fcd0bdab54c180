// SPDX-License-Identifier: MIT
// SlotWriter: the sending end of a segment. See segment.hpp for the invariants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/shm/segment.hpp"

namespace aplib::comm::shm {

/// Copies up to inline_bytes_max bytes; a call of memcpy takes longer than this.
inline void copy_inline(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const auto both_ends = [&]<class Word>(Word) {
    Word first;
    Word last;
    std::memcpy(&first, from, sizeof first);
    std::memcpy(&last, from + bytes - sizeof last, sizeof last);
    std::memcpy(to, &first, sizeof first);
    std::memcpy(to + bytes - sizeof last, &last, sizeof last);
  };
  struct Half {
    std::uint64_t words[2];
  };
  if (bytes >= sizeof(Half)) {
    both_ends(Half{});
  } else if (bytes >= sizeof(std::uint64_t)) {
    both_ends(std::uint64_t{});
  } else if (bytes >= sizeof(std::uint32_t)) {
    both_ends(std::uint32_t{});
  } else {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

/// Thread safety: one thread at a time.
class SlotWriter {
 public:
  /// Into `mine`, as far as `theirs` says that it was taken.
  void attach(Segment& mine, const Segment& theirs) noexcept {
    mine_ = &mine;
    theirs_ = &theirs;
  }

  /// Puts a slot with a body of up to piece_bytes_max bytes. False: there is no room now.
  bool put(SlotKind kind, const Label& label, std::span<const std::byte> body) noexcept {
    // One slot is kept for the end.
    if (slots_ - slots_taken_ >= slot_count - 1) [[unlikely]] {
      if (!look() || slots_ - slots_taken_ >= slot_count - 1) return false;
    }
    return fill(kind, label, body);
  }

  /// The mark of the ordered end, once; there is always room.
  void put_end() noexcept { fill(SlotKind::end, {}, {}); }

  /// Would a slot with such a body fit now?
  [[nodiscard]] bool has_room(std::size_t bytes) noexcept {
    return look() && slots_ - slots_taken_ < slot_count - 1 && (bytes <= inline_bytes_max || fits(place(bytes), bytes));
  }

  /// Has the reader taken more than when this was last asked?
  [[nodiscard]] bool moves() noexcept {
    const std::uint32_t before = slots_taken_;
    look();
    return slots_taken_ != before;
  }

  /// What the reader says it has taken makes no sense: it is to be given up.
  [[nodiscard]] bool is_deceived() const noexcept { return deceived_; }

 private:
  static constexpr std::uint32_t unit_bytes = cache_line_bytes;
  static constexpr std::uint32_t units_count = bodies_bytes / unit_bytes;

  bool fill(SlotKind kind, const Label& label, std::span<const std::byte> body) noexcept {
    Slot& slot = mine_->slots[slots_ % slot_count];
    if (body.size() <= inline_bytes_max) {
      copy_inline(slot.body, body.data(), body.size());
    } else {
      const std::uint32_t at = place(body.size());
      if (!fits(at, body.size()) && (!look() || !fits(at, body.size()))) return false;
      std::memcpy(mine_->bodies + std::size_t{at % units_count} * unit_bytes, body.data(), body.size());
      units_ = at + units(body.size());
    }
    slot.what = static_cast<std::uint32_t>(kind) << 24U | static_cast<std::uint32_t>(body.size());
    slot.label = label;
    ++slots_;
    slot.turn.store(slots_, std::memory_order_release);  // invariant (3)
    return true;
  }

  static std::uint32_t units(std::size_t bytes) noexcept {
    return static_cast<std::uint32_t>((bytes + unit_bytes - 1) / unit_bytes);
  }
  /// Invariant (5).
  [[nodiscard]] std::uint32_t place(std::size_t bytes) const noexcept {
    const std::uint32_t in_lap = units_ % units_count;
    return in_lap + units(bytes) <= units_count ? units_ : units_ + (units_count - in_lap);
  }
  [[nodiscard]] bool fits(std::uint32_t at, std::size_t bytes) const noexcept {
    return at + units(bytes) - units_taken_ <= units_count;
  }

  /// Invariant (4). False: deceived.
  bool look() noexcept {
    const std::uint64_t taken = theirs_->taken.load(std::memory_order_acquire);
    const auto slots = static_cast<std::uint32_t>(taken);
    const auto units = static_cast<std::uint32_t>(taken >> 32U);
    if (slots - slots_taken_ > slots_ - slots_taken_ || units - units_taken_ > units_ - units_taken_) {
      deceived_ = true;
      return false;
    }
    slots_taken_ = slots;
    units_taken_ = units;
    return true;
  }

  Segment* mine_ = nullptr;
  const Segment* theirs_ = nullptr;
  std::uint32_t slots_ = 0;
  std::uint32_t slots_taken_ = 0;
  std::uint32_t units_ = 0;
  std::uint32_t units_taken_ = 0;
  bool deceived_ = false;
};

}  // namespace aplib::comm::shm
