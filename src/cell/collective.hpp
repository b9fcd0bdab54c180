// SPDX-License-Identifier: MIT
// Shared state of collectives. The cells of a group (all, a row, a column) go through numbered episodes together. A
// cell enters episode e+1 only after episode e is complete. So two sets of places are enough, one for each parity.
//
// Group `all` is the fast one. Every processor has a line per parity. When all its cells have arrived, it publishes
// there how many they are, and the pieces of the reduction tree they cover. Each processor reads the others' lines; the
// episode is complete when the counts add up to the number of cells. No two processors write the same line.
//
// Rows and columns count arrivals in one shared counter. The last to arrive reduces, and marks the episode done.
//
// Episodes count in 64 bits, so their numbers never come back. 2^32 of them, at 0.1 us each, pass in seven minutes.
//
// Invariants: (1) a line of parity e%2 is rewritten for e+2 only after its owner saw e+1 complete, hence after every
// processor with cells has used e; (2) the fields of a line are written before its count, and the count before its
// episode (release each); readers take them in the opposite order (acquire), so a count that belongs to the episode
// makes its fields visible, too; (3) the operands of an episode (Cell::places) are written before the arrival is
// published, in either scheme.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aplib/collective.hpp"
#include "arch/cpu.hpp"
#include "cell/fold.hpp"

namespace aplib {

/// What one cell asks of a collective. All cells of the group must ask for the same, but for the value and `stat`.
enum class CollectiveKind : std::uint8_t { barrier, reduce, broadcast, last = broadcast };

/// A reduction of arrays as one word. The calls that it consists of carry it, so that cells which disagree are found.
struct ArrayReduction {
  ReduceOp op = ReduceOp::sum;
  NumberType type = NumberType::float64;
  std::uint64_t count = 0;

  /// Never 0.
  [[nodiscard]] std::uint64_t word() const noexcept {
    return count << 9 | static_cast<std::uint64_t>(op) << 5 | static_cast<std::uint64_t>(type) << 1 | 1U;
  }
  /// An invalid word, which a peer may send, gives the last operation or type.
  static ArrayReduction from(std::uint64_t word) noexcept {
    return {std::min(static_cast<ReduceOp>(word >> 5 & 0xfU), ReduceOp::last),
            std::min(static_cast<NumberType>(word >> 1 & 0xfU), NumberType::last), word >> 9};
  }
};

struct CollectiveCall {
  const char* call = "";  ///< As the user wrote it.
  CollectiveKind kind = CollectiveKind::barrier;
  Scope scope = Scope::all;
  Combine combine;
  std::uint64_t bytes = 0;  ///< broadcast: size. reduce: 0, or an ArrayReduction that all must agree about.
  std::uint32_t root = 0;   ///< broadcast: cell.

  /// Calls that fit together have the same one. Never 0.
  [[nodiscard]] std::uint32_t signature() const noexcept {
    std::uint64_t mix = static_cast<std::uint64_t>(kind) + 1;
    if (kind == CollectiveKind::reduce) {
      mix |= static_cast<std::uint64_t>(combine.op) << 4 | static_cast<std::uint64_t>(combine.type) << 8 |
             static_cast<std::uint64_t>(combine.located) << 12;
      mix ^= bytes * 0x9e37'79b9'7f4a'7c15ULL;
    } else if (kind == CollectiveKind::broadcast) {
      mix |= bytes << 16;
      mix ^= std::uint64_t{root} * 0x9e37'79b9'7f4a'7c15ULL << 4;
    }
    mix *= 0xff51'afd7'ed55'8ccdULL;
    return static_cast<std::uint32_t>(mix >> 32) | 1U;
  }
};

/// "reduce (sum of double)".
[[nodiscard]] std::string describe(const CollectiveCall& call);

/// What one processor publishes for one episode of the group `all`. Exactly one cache line.
struct alignas(cache_line_bytes) ArrivalLine {
  static constexpr std::uint32_t piece_count_max = 3;
  std::atomic<std::uint64_t> next_episode{0};  ///< The line's episode + 1.
  std::atomic<std::uint32_t> arrived{0};       ///< Cells arrived in it.
  std::uint32_t signature = 0;                 ///< 0: cells of this processor disagree.
  std::uint16_t first = 0;                     ///< First cell covered, when pieces > 0.
  std::uint16_t pieces = 0;  ///< Subtrees that cover our cells in order; 0: look at Cell::places instead.
  std::uint64_t bits[piece_count_max] = {};      ///< Value of each piece,
  std::int32_t locations[piece_count_max] = {};  ///< its location,
  std::uint8_t levels[piece_count_max] = {};     ///< and its level in the tree.

  /// Owner: the fields above are complete.
  void publish(std::uint64_t episode, std::uint32_t cells) noexcept {
    arrived.store(cells, std::memory_order_release);             // invariant (2)
    next_episode.store(episode + 1, std::memory_order_release);  // invariant (2)
  }
  /// Cells that have arrived in `episode`.
  [[nodiscard]] std::uint32_t arrived_in(std::uint64_t episode) const noexcept {
    if (next_episode.load(std::memory_order_acquire) != episode + 1) return 0;  // invariant (2)
    return arrived.load(std::memory_order_acquire);                             // invariant (2)
  }
};
static_assert(sizeof(ArrivalLine) == cache_line_bytes);

/// One processor's lines for both parities, each on a pair of cache lines of its own.
struct alignas(cache_pair_bytes) ArrivalLines {
  alignas(cache_pair_bytes) ArrivalLine even;
  alignas(cache_pair_bytes) ArrivalLine odd;
  ArrivalLine& of(std::uint64_t episode) noexcept { return (episode & 1U) != 0 ? odd : even; }
};

/// Where the root of a broadcast shows its bytes. It stages a few bytes, so that it need not wait for the readers.
struct BroadcastPlace {
  static constexpr std::size_t staged_bytes_max = 8 * 1024;
  const void* bytes = nullptr;
  std::unique_ptr<char[]> stage;          ///< Made by the first small broadcast.
  std::atomic<std::uint32_t> readers{0};  ///< Of many bytes.

  /// Root: shows `source`. Many bytes are shown where they are; then the root must wait for the readers.
  void show(const void* source, std::size_t size);
  /// Another cell: copies what is shown, unless the machine stops.
  void copy_to(void* buffer, std::size_t size, const std::atomic<bool>& stopping) noexcept;
  /// Root: the machine stops, and what is shown is about to go. Nobody reads it when this returns.
  void await_readers() const noexcept;
};

class Exchange;

/// Shared by the cells of one group.
struct Group {
  Scope scope = Scope::all;
  std::uint32_t first = 0;  ///< First cell; member i is first + i * stride.
  std::uint32_t stride = 1;
  std::uint32_t count = 0;
  std::vector<std::uint32_t> local;  ///< Members that this process carries: cells, ascending.
  Exchange* exchange = nullptr;      ///< With the other processes that have members; null: there are none.

  // Rows and columns, and groups with an exchange.
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> arrived{0};
  alignas(cache_pair_bytes) std::atomic<std::uint64_t> done{0};  ///< Episodes complete.
  Operand result[2]{};
  bool mismatch[2] = {false, false};

  /// Which member a cell of the group is: 0 .. count - 1.
  [[nodiscard]] std::uint32_t member(std::uint32_t cell) const noexcept { return (cell - first) / stride; }
  [[nodiscard]] bool contains(std::uint32_t cell) const noexcept {
    return cell >= first && (cell - first) % stride == 0 && (cell - first) / stride < count;
  }
};

}  // namespace aplib
