// SPDX-License-Identifier: MIT
// Board: what the ranks of a communicator share if one process carries them all. Each rank has a slot, where it shows
// what it gives in the call under way, and others take it straight from there. Meeting (meeting.hpp) is its use.
//
// A call is one episode or two. In an episode each rank shows something, perhaps nothing, and arrives once. Nobody
// arrives in an episode before the last one is complete: all have arrived in it.
//
// Invariants: (1) arrivals are counted by processors, each in a line that it alone writes; so a sum of them says which
// episodes are complete. Few ranks look at each other's slots instead, which saves a cache line; (2) a slot and a line
// have places for two episodes, by parity. They are written for episode e + 2 only when e + 1 is complete, so everyone
// has done with e; (3) who shows memory of its own waits until nobody reads it any more; a copy in the slot needs no
// wait; (4) who cannot wait for that, because a rank has ended or the machine stops, closes the board and waits for
// those who are reading (close()); nobody begins to read after that.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "arch/cpu.hpp"
#include "mpi/layout.hpp"

namespace aplib::mpi {

/// What a rank gives to others.
struct Given {
  Elements first{};  ///< Rank 0's block.
  Count step = 0;    ///< Elements from one rank's block to the next one's; 0: all get the same.
  /// If not null, it says where the blocks are.
  Elements (*block)(const void* blocks, int rank) = nullptr;
  const void* blocks = nullptr;
  Elements result{};  ///< Of a reduction: where its result belongs.

  [[nodiscard]] Elements block_of(int rank) const;
};

/// A large copy by its owner, from the front, and perhaps by one other rank, from the back.
///
/// Invariant: claimed_ counts chunks handed out, of whichever end; so those of the two ends are never the same.
class SharedCopy {
 public:
  static constexpr Count bytes_min = 32 * 1024;

  /// Owner, before the other one may see it. Nobody uses it any more for what it was before.
  void begin(const Elements& to, const Elements& from) noexcept;
  /// Owner: returns when all is copied.
  void finish() noexcept;
  /// The other one: copies a chunk. False: none is left.
  bool help() noexcept;

 private:
  static constexpr Count chunk_bytes_min = 16 * 1024;
  static constexpr Count chunks_max = 16;

  [[nodiscard]] bool claim() noexcept {
    // relaxed: only a ticket. The look comes first, because who waits asks again and again.
    return claimed_.load(std::memory_order_relaxed) < count_ &&
           claimed_.fetch_add(1, std::memory_order_relaxed) < count_;
  }
  void copy_chunk(std::uint32_t chunk) noexcept;

  Elements to_{};
  Elements from_{};
  Count bytes_ = 0;
  Count chunk_bytes_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t helped_ = 0;  // chunks from the back
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> claimed_{0};
  std::atomic<std::uint32_t> finished_{0};
};

class Board {
 public:
  /// As many bytes are copied to be shown, so that their owner need not wait until they are read.
  static constexpr Count copied_max = 2048;

  /// Held by each rank.
  Board(std::uint32_t ranks, std::uint32_t processors);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  struct Release {
    void operator()(Board* board) const noexcept { board->release(); }
  };

 private:
  friend class Meeting;

  static constexpr std::size_t inline_bytes = 16;
  static constexpr std::size_t result_bytes_max = 96;
  static constexpr std::uint32_t few_ranks_max = 4;

  /// What is copied to be shown: a block for each rank, or one for all.
  struct Copied {
    static constexpr std::uint16_t none = 0xffff;
    std::uint16_t bytes = none;  ///< Of a block.
    std::uint16_t step = 0;      ///< Bytes from one block to the next.
  };

  /// A rank's. The first cache line is all that others read of small data.
  struct alignas(cache_pair_bytes) Slot {
    std::atomic<std::uint64_t> progress{0};  ///< See shown_in() and arrived_in().
    std::array<std::uint32_t, 2> tag{};
    std::array<std::uint32_t, 2> agreed{};
    std::array<Copied, 2> copied{};
    alignas(16) std::array<std::array<std::byte, inline_bytes>, 2> small;
    alignas(cache_line_bytes) std::atomic<std::uint64_t> done{0};  ///< Of a root: the episodes whose blocks it has.
    std::atomic<std::uint32_t> reading{0};  ///< 1 + the processor on which it reads others' memory; 0: it does not.
    std::uint64_t complete = 0;             ///< Own: episodes that it knows to be complete.
    std::unique_ptr<std::byte[]> large;     ///< Copies of both parities. Made by the first one.
    std::array<Given, 2> given{};
    std::array<SharedCopy, 2> copies;  ///< Of what it takes.
  };

  /// The progress of a rank that has shown something in the episode, and of one that has arrived in it.
  [[nodiscard]] static constexpr std::uint64_t shown_in(std::uint64_t episode) noexcept { return 2 * episode + 1; }
  [[nodiscard]] static constexpr std::uint64_t arrived_in(std::uint64_t episode) noexcept { return 2 * episode + 2; }

  /// A processor's arrivals, in the order in which processors have come to the board.
  struct alignas(cache_pair_bytes) Line {
    std::atomic<std::uint64_t> arrived{0};
    std::array<std::uint64_t, 2> episode{};    ///< 1 + the one that the signature belongs to,
    std::array<std::uint64_t, 2> signature{};  ///< of all ranks that have arrived here in it; 0: they disagree.
  };

  /// A processor's own notes, read by nobody else.
  struct alignas(cache_pair_bytes) Place {
    Line* line = nullptr;         ///< Null: none yet.
    std::uint64_t arrived = 0;    ///< As in the line, which others' looks take away.
    std::uint64_t episode = 0;    ///< Same.
    std::uint64_t signature = 0;  ///< Of the first rank that has arrived here in the episode.
    std::uint64_t complete = 0;
    std::uint64_t arrived_before = 0;  ///< Until the last episode that is complete;
    std::uint64_t usually = 0;         ///< so many in that one.
    std::uint64_t agreed = 0;          ///< 1 + the last episode in which all ranks are known to agree.

    /// It is worth a look whether the episode is complete.
    [[nodiscard]] bool is_worth_a_look() const noexcept { return arrived - arrived_before >= usually; }
    std::uint64_t result_of = 0;  ///< 1 + the episode of the result.
    alignas(16) std::array<std::byte, result_bytes_max> result;
  };

  ~Board() = default;
  void release() noexcept;
  /// It has no lines.
  [[nodiscard]] bool has_few_ranks() const noexcept { return ranks_ <= few_ranks_max; }
  [[nodiscard]] bool is_complete(std::uint64_t episode) const noexcept;
  /// A rank on this processor cannot wait any longer: in this episode the rank `ended` will not arrive. It may be that
  /// rank itself.
  void close(std::uint32_t processor, int ended, std::uint64_t episode) noexcept;

  const std::uint32_t ranks_;
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Line[]> lines_;
  std::unique_ptr<Place[]> places_;
  std::atomic<std::uint32_t> line_count_{0};
  std::atomic<bool> is_closing_{false};
  std::atomic<bool> is_closed_{false};
  // Once it is closed: why.
  int ended_ = -1;
  std::uint64_t failed_in_ = 0;
  alignas(cache_pair_bytes) std::atomic<std::uint32_t> holders_;
};

using BoardPtr = std::unique_ptr<Board, Board::Release>;

}  // namespace aplib::mpi
