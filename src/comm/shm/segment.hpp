// SPDX-License-Identifier: MIT
// What lies in shared memory. Each process writes memory of its own alone, and reads that of the others:
//
//   Segment, one for each peer that frames have gone to or come from: what we send there, and how far we have taken what comes from there
//   Board, one for all peers: are we asleep, what memory of ours is open
//
// A frame takes a slot, one cache line, which carries its label and up to 32 bytes of body. More lies in `bodies`. A large body comes in pieces, a slot each.
//
// Invariants:
//  (1) Position p of a stream of slots lies in slots[p % slot_count]; its turn is p + 1 once it is published. Positions count modulo 2^32.
//  (2) The writer writes a slot, and its part of `bodies`, only when the reader has given them back: `taken`.
//  (3) All else of a slot and its body is written before its turn (release), and read after it (acquire).
//  (4) `taken` is stored after the last read of what it gives back (release), and read with acquire before that is written again.
//  (5) A body of more than 32 bytes begins at the first multiple of 64 at or behind the end of the one before, at the beginning of `bodies` where it would reach over its end. Both sides count, so that
//      nothing in shared memory says where a body lies.
// All that a peer writes is believed by nobody: a slot is copied before it is looked at, and what it says is checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "arch/cpu.hpp"
#include "comm/label.hpp"
#include "comm/module.hpp"

namespace aplib::comm::shm {

inline constexpr std::uint32_t slot_count = 256;
inline constexpr std::size_t inline_bytes_max = 32;
inline constexpr std::size_t bodies_bytes = 128 * 1024;
inline constexpr std::size_t piece_bytes_max = 32 * 1024;
static_assert(bodies_bytes >= 2 * piece_bytes_max, "invariant (5): else a body might never fit");
static_assert(piece_bytes_max >= Module::large_from_bytes);

enum class SlotKind : std::uint8_t {
  frame = 1,  ///< A whole one.
  large,      ///< A large one begins. Body: its length, 8 bytes.
  piece,      ///< The next bytes of its body.
  end,        ///< The ordered end.
};

struct alignas(cache_line_bytes) Slot {
  std::atomic<std::uint32_t> turn;  // invariant (1)
  std::uint32_t what;               // SlotKind << 24 | bytes of the body
  Label label;
  std::byte body[inline_bytes_max];
};
static_assert(sizeof(Slot) == cache_line_bytes);

struct Segment {
  /// Slots that the owner has taken out of the other's segment, and, << 32, of its bodies, in units of 64 bytes.
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> taken;
  /// The owner has frames that did not fit: who makes room wakes it.
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> wants_room;
  alignas(cache_pair_bytes) Slot slots[slot_count];
  alignas(cache_pair_bytes) std::byte bodies[bodies_bytes];
};

inline constexpr std::size_t board_name_bytes = 32;
inline constexpr std::uint32_t openings_max = 65'536;
inline constexpr std::uint32_t accesses_count = 64;

struct Board {
  /// Endpoint::name: who reads it at the address that the endpoint tells reaches this process's memory.
  char name[board_name_bytes];
  /// Odd: asleep, or about to be; another number each time.
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> asleep;
  /// Accesses of the owner to memory of others that are under way, by the place of the opening there, modulo their number (remote_memory.hpp).
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> accesses[accesses_count];
  /// Tokens of the owner's memory that is open; 0: none.
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> openings[openings_max];
};

}  // namespace aplib::comm::shm
