// SPDX-License-Identifier: MIT
// HostBoard: what the ranks of a communicator share if several processes of one host carry them. Each shows a small
// block to all others there, without a message: where ranks share cores, each message that some wait for is a turn of
// all processes. All meet, or one tells the others.
//
// Invariants: (1) a meeting is over when all ranks have arrived in it, and nobody arrives in the next one before; so
// the count of arrivals says which are over. (2) A rank has a line for meetings of each parity. It writes it for
// meeting e + 2 only when e + 1 is over, so everyone has done with e. (3) A root that tells all others something does
// not wait for them, until it has as many words that some have not heard as it has places. (4) A rank whose thread goes
// to sleep says so first, and then looks at what it waits for; who changes that does so first, and then looks who
// sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arch/cpu.hpp"
#include "kernel/shared_memory.hpp"
#include "mpi/layout.hpp"

namespace aplib::mpi {

class Collective;

class HostBoard {
 public:
  static constexpr int ranks_max = 256;  // each looks at all

  /// Null: there is no memory that processes can share.
  [[nodiscard]] static std::unique_ptr<HostBoard> make(int ranks);
  /// What another rank has made. Null: it cannot be mapped.
  [[nodiscard]] static std::unique_ptr<HostBoard> open(const SharedFilePlace& place, int ranks);
  [[nodiscard]] SharedFilePlace place() const noexcept { return memory_.place(); }
  /// All have opened it.
  void end_place() noexcept { memory_.end_place(); }

  [[nodiscard]] static constexpr bool holds(Count bytes) noexcept { return bytes <= bytes_max; }
  /// Shows a block to all, and waits until all have shown theirs. Fails if they are not in the same call, with as many
  /// bytes. Of a block that it does not hold, it shows how many.
  void meet(const Collective& collective, const Elements& own);
  /// The block of a rank, in the last meeting, from its byte `first` on.
  void take(int from, const Elements& to, Count first = 0) const;

  [[nodiscard]] static constexpr bool can_tell(Count bytes) noexcept { return bytes <= told_max; }
  /// Shows a block to all others, which call hear(); of one that it cannot tell, how many bytes. Waits only if it is
  /// far ahead of some.
  void tell(const Collective& collective, const Elements& own);
  /// Gets the next block of the root. Fails unless it has exactly the bytes of `to`.
  void hear(const Collective& collective, int root, const Elements& to);

  /// The rank is in its `count`th call of the communicator, wherever: those that wait for it here in another one fail.
  void note_call(int rank, std::uint32_t count, std::uint32_t tag) noexcept {
    // release: what it has done in calls before
    seat(rank).call.store(std::uint64_t{count} << 32 | tag, std::memory_order_release);
  }

 private:
  class Awaited;
  class AllHere;
  class Told;
  class AllHeard;

  static constexpr Count bytes_max = 16 * 1024;
  static constexpr Count told_max = 1024;
  static constexpr std::uint64_t words_ahead = 64;
  static constexpr Count inline_bytes = 40;

  /// What a rank shows.
  struct alignas(cache_line_bytes) Line {
    std::atomic<std::uint64_t> number{0};  ///< 1 + that of the meeting in which it has arrived, or of the word.
    std::uint32_t tag = 0;
    std::uint64_t bytes = 0;
    std::byte small[inline_bytes];
  };
  static_assert(sizeof(Line) == cache_line_bytes && std::atomic<std::uint64_t>::is_always_lock_free);
  struct Block {
    Line* line;
    std::byte* large;  ///< Of what the line cannot hold.
    [[nodiscard]] std::byte* place(Count bytes) const noexcept { return bytes <= inline_bytes ? line->small : large; }
  };
  struct Head {
    alignas(cache_pair_bytes) std::atomic<std::uint64_t> arrived{0};
    alignas(cache_pair_bytes) std::atomic<std::uint32_t> sleepers{0};
  };
  /// What a rank says of itself.
  struct alignas(cache_line_bytes) Seat {
    std::atomic<std::uint64_t> call{0};  ///< Count and tag.
    std::atomic<bool> sleeps{false};
  };
  struct Layout;

  HostBoard(api::SharedMemory memory, int ranks);
  [[nodiscard]] Head& head() const noexcept { return *reinterpret_cast<Head*>(memory_.data()); }
  [[nodiscard]] Block shown(std::uint64_t meeting, int rank) const noexcept {
    const std::size_t at = (meeting & 1U) * size() + static_cast<std::size_t>(rank);
    return {&lines_[at], blocks_ + at * bytes_max};
  }
  [[nodiscard]] Block word(std::uint64_t number, int root) const noexcept {
    const std::size_t at = static_cast<std::size_t>(root) * words_ahead + number % words_ahead;
    return {&words_[at], told_ + at * told_max};
  }
  /// Of a root's words, those that the rank has heard.
  [[nodiscard]] std::atomic<std::uint64_t>& heard(int root, int rank) const noexcept {
    return heard_[static_cast<std::size_t>(root) * size() + static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Seat& seat(int rank) const noexcept { return seats_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(ranks_); }
  static void show(const Block& block, const Collective& collective, const Elements& own, Count bytes_max);
  void wait(const Collective& collective, Awaited& awaited);
  void check_open() const;
  void wake_sleepers(const Collective& collective) const;
  void wake_sleeper(const Collective& collective, int rank) const;
  void check(const Collective& collective, std::uint64_t meeting, Count bytes) const;

  api::SharedMemory memory_;
  int ranks_;
  // In that memory.
  Line* lines_ = nullptr;
  Line* words_ = nullptr;
  std::atomic<std::uint64_t>* heard_ = nullptr;
  Seat* seats_ = nullptr;
  std::byte* blocks_ = nullptr;
  std::byte* told_ = nullptr;

  std::uint64_t meetings_ = 0;           // that this rank has begun
  std::vector<std::uint64_t> words_of_;  // of each root, that it has told or heard
  std::uint64_t heard_by_all_ = 0;       // of its own words, at least
  int ended_ = -1;                       // A rank that it has waited for in vain: nothing else can be done here.
};

}  // namespace aplib::mpi
