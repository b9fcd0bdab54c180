// SPDX-License-Identifier: MIT
// Outflow: the stream that a long link sends, from the first byte that the other side has not acknowledged. It knows
// which lane has been given which bytes. A lane pulls the next chunk when it has room; what a lane had that has ended
// is given to others again. Pure logic: it knows no sockets and no clock.
//
// Invariants:
// (1) acknowledged <= given <= end. Every byte before `given` is acknowledged, was given to a lane that still stands,
//     or waits to be given again.
// (2) The bytes of a chunk that a lane is sending stay where they are until it is sent.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "comm/tcp/chunk.hpp"

namespace aplib::comm::tcp {

/// Thread safety: none; the link's lock.
class Outflow {
 public:
  /// So much is given and not acknowledged at most, which bounds what the other side has to keep until its turn comes.
  static constexpr std::uint64_t window_bytes = std::uint64_t{64} << 20;
  /// Smaller chunks go by the first lane alone: they stay in order there.
  static constexpr std::size_t other_lanes_from_bytes = 32 * 1024;

  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    [[nodiscard]] std::uint64_t bytes() const noexcept { return end - begin; }
    [[nodiscard]] bool empty() const noexcept { return begin == end; }
  };
  /// What one lane has.
  struct Share {
    Range current{};            ///< The chunk that it is sending. Empty: none.
    std::deque<Range> given{};  ///< What it has sent, in the order of sending, joined where it can be.
  };

  Outflow() = default;
  Outflow(const Outflow&) = delete;
  Outflow& operator=(const Outflow&) = delete;

  /// Copies both, one behind the other, to the end of the stream. Throws std::bad_alloc: then nothing was added.
  void append(std::span<const std::byte> first, std::span<const std::byte> second = {});
  /// What was appended is all.
  void end() noexcept { ended_ = true; }
  [[nodiscard]] bool ended() const noexcept { return ended_; }

  /// A lane is there. The share is valid until lose().
  Share& open();
  /// The lane has ended: what it had is given again. Throws std::bad_alloc.
  void lose(Share& share);

  /// Gives the lane, which sends nothing, its next chunk, of `most` bytes at most. False: there is none for it.
  bool give(Share& share, bool first_lane, std::size_t most);
  /// The chunk that the lane is sending, behind its first `skip` bytes, as pieces for a system call; returns how many.
  [[nodiscard]] std::size_t peek(const Share& share, std::uint64_t skip, std::span<iovec> pieces) const noexcept;
  [[nodiscard]] bool is_last(const Share& share) const noexcept { return ended_ && share.current.end == end_; }
  /// The lane has sent its chunk. Throws std::bad_alloc.
  void sent(Share& share);

  /// The other side has taken so much. False: so much was not sent.
  [[nodiscard]] bool acknowledge(std::uint64_t bytes) noexcept;

  [[nodiscard]] std::uint64_t acknowledged() const noexcept { return acknowledged_; }
  [[nodiscard]] std::uint64_t given() const noexcept { return given_; }
  /// Bytes that no lane has: new ones, and those to be given again.
  [[nodiscard]] std::size_t waiting() const noexcept { return static_cast<std::size_t>(end_ - given_ + again_bytes_); }
  [[nodiscard]] std::size_t unacknowledged() const noexcept { return static_cast<std::size_t>(end_ - acknowledged_); }
  /// Bytes of memory.
  [[nodiscard]] std::size_t kept() const noexcept { return static_cast<std::size_t>(end_ - kept_from_); }
  /// Forgets all but the chunks that lanes are sending, as if it had been acknowledged.
  void clear() noexcept;

 private:
  static constexpr std::size_t block_bytes = 64 * 1024;
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t capacity = 0;
    std::size_t size = 0;
    std::uint64_t offset = 0;
  };
  static std::size_t fill(Block& block, std::span<const std::byte> bytes) noexcept;
  void forget() noexcept;
  void clip_again() noexcept;

  std::deque<Block> blocks_;
  std::unique_ptr<std::byte[]> spare_;  // Of block_bytes: a steady stream allocates nothing.
  std::list<Share> shares_;
  std::vector<Range> again_;  // To be given again; the last one first, so that it ends with the earliest.
  std::uint64_t again_bytes_ = 0;
  std::uint64_t kept_from_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t given_ = 0;
  std::uint64_t end_ = 0;
  bool ended_ = false;
};

}  // namespace aplib::comm::tcp
