// SPDX-License-Identifier: MIT
// HostBoard: what the ranks of a communicator share if several processes of one host carry them. Each shows a small
// block to all others there, without a message: where ranks share cores, each message that some wait for is a turn of
// all processes.
//
// Invariants: (1) a meeting is over when all ranks have arrived in it, and nobody arrives in the next one before; so
// the count of arrivals says which are over. (2) A rank has a line for meetings of each parity. It writes it for
// meeting e + 2 only when e + 1 is over, so everyone has done with e. (3) A rank whose thread goes to sleep says so
// first, and then looks at the count; the last one to arrive counts itself first, and then looks who sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

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
  /// Shows a block to all, and waits until all have shown theirs. Fails if they are not in the same call.
  void meet(const Collective& collective, const Elements& own);
  /// The block of a rank, in the last meeting. Fails unless it has exactly the bytes of `to`.
  void take(int from, const Elements& to) const { take(from, to, 0, to.bytes()); }
  /// A part of one that has `all` bytes, from its byte `first` on.
  void take(int from, const Elements& to, Count first, Count all) const;

 private:
  class AllHere;

  static constexpr Count bytes_max = 16 * 1024;
  static constexpr Count inline_bytes = 40;

  struct Head {
    alignas(cache_pair_bytes) std::atomic<std::uint64_t> arrived{0};
    alignas(cache_pair_bytes) std::atomic<std::uint32_t> sleepers{0};
  };
  struct alignas(cache_line_bytes) Line {
    std::atomic<std::uint64_t> meeting{0};  ///< 1 + the one that the rank has arrived in.
    std::uint32_t tag = 0;
    std::uint32_t bytes = 0;
    std::atomic<bool> sleeps{false};
    alignas(8) std::byte small[inline_bytes];
  };
  static_assert(sizeof(Line) == cache_line_bytes && std::atomic<std::uint64_t>::is_always_lock_free);

  HostBoard(api::SharedMemory memory, int ranks) noexcept : memory_(std::move(memory)), ranks_(ranks) {}
  [[nodiscard]] static constexpr std::size_t bytes_of(int ranks) noexcept {
    return sizeof(Head) + 2 * static_cast<std::size_t>(ranks) * (sizeof(Line) + bytes_max);
  }
  [[nodiscard]] std::size_t at(std::uint64_t meeting, int rank) const noexcept {
    return (meeting & 1U) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank);
  }
  [[nodiscard]] Head& head() const noexcept { return *reinterpret_cast<Head*>(memory_.data()); }
  [[nodiscard]] Line& line(std::uint64_t meeting, int rank) const noexcept {
    return reinterpret_cast<Line*>(memory_.data() + sizeof(Head))[at(meeting, rank)];
  }
  [[nodiscard]] std::byte* block(std::uint64_t meeting, int rank, Count bytes) const noexcept {
    if (bytes <= inline_bytes) return line(meeting, rank).small;
    return memory_.data() + sizeof(Head) + 2 * static_cast<std::size_t>(ranks_) * sizeof(Line) +
           at(meeting, rank) * bytes_max;
  }
  void wake_sleepers(const Collective& collective, std::uint64_t meeting) const;
  void check(const Collective& collective, std::uint64_t meeting) const;

  api::SharedMemory memory_;
  int ranks_;
  std::uint64_t meetings_ = 0;  // that this rank has begun
  int ended_ = -1;              // A rank that one of them has waited for in vain: no other can be.
};

}  // namespace aplib::mpi
