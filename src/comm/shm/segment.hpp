// SPDX-License-Identifier: MIT
// What lies in shared memory. Each process writes only memory of its own, and reads that of the others:
//
//   Segment        one for each peer: the frames that we send there, and how far we have taken those from there
//   ControlBlock   one for all peers: whether we sleep, and which memory of ours is open
//
// A frame takes an entry, which is one cache line: its label and up to 32 bytes of body. A longer body lies in
// `bodies`. A large body comes in pieces, an entry each.
//
// Invariants:
// (1) Position p of a stream of entries lies in entries[p % entry_count]; its turn is p + 1 once it is published.
//     Positions count modulo 2^32.
// (2) The writer writes an entry, and its part of `bodies`, only when the reader has given them back: `taken`.
// (3) All else of an entry and its body is written before its turn (release), and read after it (acquire).
// (4) `taken` is stored after the last read of what it gives back (release), and read with acquire before that is
//     written again.
// (5) A body of more than 32 bytes begins at the first multiple of 64 at or after the end of the one before, or at the
//     beginning of `bodies` where it would reach beyond their end. Both sides count, so nothing in shared memory says
//     where a body lies.
//
// A peer is not trusted: an entry is copied before it is looked at, and each of its words is checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "arch/cpu.hpp"
#include "comm/module.hpp"

namespace aplib::comm::shm {
inline constexpr std::uint32_t entry_count = 256;
inline constexpr std::size_t inline_bytes_max = 32;
inline constexpr std::size_t bodies_bytes = 128 * 1024;
inline constexpr std::size_t piece_bytes_max = 32 * 1024;
static_assert(bodies_bytes >= 2 * piece_bytes_max, "invariant (5): else a body might never fit");
static_assert(piece_bytes_max >= Module::large_from_bytes);

enum class EntryKind : std::uint8_t {
  frame = 1,  ///< A whole one.
  large,      ///< A large one begins. Body: its length, 8 bytes.
  piece,      ///< The next bytes of its body.
  end,        ///< The ordered end.
};

struct alignas(cache_line_bytes) Entry {
  std::atomic<std::uint32_t> turn;  // invariant (1)
  std::uint32_t what;               // EntryKind << 24 | bytes of the body
  Label label;
  std::byte body[inline_bytes_max];
};
static_assert(sizeof(Entry) == cache_line_bytes);

struct Segment {
  /// Entries that the owner has taken out of the other's segment, and, << 32, of its bodies, in units of 64 bytes.
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> taken;
  /// The owner has frames that did not fit. A peer that makes room wakes it.
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> wants_room;
  alignas(cache_pair_bytes) Entry entries[entry_count];
  alignas(cache_pair_bytes) std::byte bodies[bodies_bytes];
};

inline constexpr std::size_t block_name_bytes = 32;
inline constexpr std::uint32_t openings_max = 65'536;
inline constexpr std::uint32_t accesses_count = 64;

struct ControlBlock {
  /// Endpoint::name. A process that reads it at the address in the endpoint can reach this process's memory.
  char name[block_name_bytes];
  /// Odd: asleep, or about to be; another number each time.
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> asleep;
  /// Accesses of the owner to memory of others that are under way, by the place of the opening there, modulo their
  /// number (remote_memory.hpp).
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> accesses[accesses_count];
  /// Tokens of the owner's memory that is open; 0: none.
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> openings[openings_max];
};

// EntryReader: the receiving end of another process's segment. See segment.hpp for the invariants.

/// An entry as it was when it was copied.
struct EntryCopy {
  std::uint32_t what = 0;
  Label label;
  std::byte inline_body[inline_bytes_max];

  [[nodiscard]] EntryKind kind() const noexcept { return static_cast<EntryKind>(what >> 24U); }
  [[nodiscard]] std::size_t bytes() const noexcept { return what & 0xff'ffffU; }
};

/// Thread safety: one thread at a time, but has_next().
class EntryReader {
 public:
  void attach(Segment& mine, const Segment& theirs) noexcept {
    mine_ = &mine;
    theirs_ = &theirs;
  }

  /// Is there an entry? Any thread.
  [[nodiscard]] bool has_next() const noexcept {
    const std::uint32_t entries = entries_.load(std::memory_order_relaxed);  // relaxed: others ask for a hint
    return theirs_->entries[entries % entry_count].turn.load(std::memory_order_acquire) ==
           entries + 1;  // invariant (3)
  }

  /// The next entry; there is one.
  void copy(EntryCopy& into) const noexcept {
    const Entry& entry = theirs_->entries[entries_.load(std::memory_order_relaxed) % entry_count];  // relaxed: our own
    into.what = entry.what;
    into.label = entry.label;
    std::memcpy(into.inline_body, entry.body, sizeof into.inline_body);
  }

  /// Where the body of an entry that was copied lies, if it is not inline: at most piece_bytes_max bytes. It may
  /// change under the reader's eyes, when the peer breaks its word.
  [[nodiscard]] const std::byte* body(std::size_t bytes) const noexcept {
    return theirs_->bodies + std::size_t{place(bytes) % units_count} * unit_bytes;
  }

  /// Done with that entry and its body.
  void pop(std::size_t bytes) noexcept {
    if (bytes > inline_bytes_max) units_ = place(bytes) + units(bytes);
    entries_.store(entries_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // relaxed: our own
  }

  /// Enough was taken that the writer should hear of it soon.
  [[nodiscard]] bool owes() const noexcept {
    return entries_.load(std::memory_order_relaxed) - entries_given_ >= entry_count / 4 ||
           units_ - units_given_ >= units_count / 4;
  }

  /// Gives back all that was taken. False: there was nothing.
  bool settle() noexcept {
    const std::uint32_t entries = entries_.load(std::memory_order_relaxed);  // relaxed: our own
    if (entries == entries_given_) return false;
    entries_given_ = entries;
    units_given_ = units_;
    mine_->taken.store(std::uint64_t{units_} << 32U | entries, std::memory_order_release);  // invariant (4)
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
  std::atomic<std::uint32_t> entries_{0};
  std::uint32_t units_ = 0;
  std::uint32_t entries_given_ = 0;
  std::uint32_t units_given_ = 0;
};

// EntryWriter: the sending end of a segment. See segment.hpp for the invariants.

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
class EntryWriter {
 public:
  /// Into `mine`, as far as `theirs` says that it was taken.
  void attach(Segment& mine, const Segment& theirs) noexcept {
    mine_ = &mine;
    theirs_ = &theirs;
  }

  /// Puts an entry with a body of up to piece_bytes_max bytes. False: there is no room now.
  bool put(EntryKind kind, const Label& label, std::span<const std::byte> body) noexcept {
    // One entry is kept for the end.
    if (entries_ - entries_taken_ >= entry_count - 1) [[unlikely]] {
      if (!look() || entries_ - entries_taken_ >= entry_count - 1) return false;
    }
    return fill(kind, label, body);
  }

  /// The mark of the ordered end, once; there is always room.
  void put_end() noexcept { fill(EntryKind::end, {}, {}); }

  /// Would an entry with such a body fit now?
  [[nodiscard]] bool has_room(std::size_t bytes) noexcept {
    return look() && entries_ - entries_taken_ < entry_count - 1 &&
           (bytes <= inline_bytes_max || fits(place(bytes), bytes));
  }

  /// Has the reader taken more than when this was last asked?
  [[nodiscard]] bool moves() noexcept {
    const std::uint32_t before = entries_taken_;
    look();
    return entries_taken_ != before;
  }

  /// What the reader says it has taken makes no sense: it is to be given up.
  [[nodiscard]] bool is_deceived() const noexcept { return deceived_; }

 private:
  static constexpr std::uint32_t unit_bytes = cache_line_bytes;
  static constexpr std::uint32_t units_count = bodies_bytes / unit_bytes;

  bool fill(EntryKind kind, const Label& label, std::span<const std::byte> body) noexcept {
    Entry& entry = mine_->entries[entries_ % entry_count];
    if (body.size() <= inline_bytes_max) {
      copy_inline(entry.body, body.data(), body.size());
    } else {
      const std::uint32_t at = place(body.size());
      if (!fits(at, body.size()) && (!look() || !fits(at, body.size()))) return false;
      copy_long(mine_->bodies + std::size_t{at % units_count} * unit_bytes, body.data(), body.size());
      units_ = at + units(body.size());
    }
    entry.what = static_cast<std::uint32_t>(kind) << 24U | static_cast<std::uint32_t>(body.size());
    entry.label = label;
    ++entries_;
    entry.turn.store(entries_, std::memory_order_release);  // invariant (3)
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
    const auto entries = static_cast<std::uint32_t>(taken);
    const auto units = static_cast<std::uint32_t>(taken >> 32U);
    if (entries - entries_taken_ > entries_ - entries_taken_ || units - units_taken_ > units_ - units_taken_) {
      deceived_ = true;
      return false;
    }
    entries_taken_ = entries;
    units_taken_ = units;
    return true;
  }

  Segment* mine_ = nullptr;
  const Segment* theirs_ = nullptr;
  std::uint32_t entries_ = 0;
  std::uint32_t entries_taken_ = 0;
  std::uint32_t units_ = 0;
  std::uint32_t units_taken_ = 0;
  bool deceived_ = false;
};

}  // namespace aplib::comm::shm
