// SPDX-License-Identifier: MIT
// Lanes: connections that carry one stream of bytes together, because one alone carries no more than its window in a
// round trip. Whichever lane takes it gets the next chunk, so that a slow one holds up nothing. The other end puts the
// chunks in order. A chunk is its place in the stream (8 bytes), its length (4), and its bytes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "launch/wire/fields.hpp"

namespace aplib::launch::files {

inline constexpr std::size_t lanes_max = 8;
inline constexpr std::size_t chunk_head_bytes = 12;
/// Bytes of one chunk. What a Sender says at a time is less.
inline constexpr std::size_t chunk_bytes_max = std::size_t{1} << 20;

using ChunkHead = std::array<std::byte, chunk_head_bytes>;
[[nodiscard]] ChunkHead chunk_head(std::uint64_t place, std::size_t bytes);

/// The stream that lanes bring. One thread at a time.
class LaneJoiner {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  /// What comes before its turn is kept, up to `early_max` bytes; the other end may not be further ahead.
  explicit LaneJoiner(std::size_t early_max) : early_max_(early_max) {}

  /// What has come by a lane; `sink` gets what is next in the stream. The other end is a stranger: false, it does not
  /// follow the form, and nothing more can be told from what it says. Throws what `sink` throws, and std::bad_alloc.
  [[nodiscard]] bool take(std::size_t lane, std::span<const std::byte> bytes, const Sink& sink);

  /// Bytes of the stream that `sink` has got.
  [[nodiscard]] std::uint64_t joined() const noexcept { return next_; }
  [[nodiscard]] std::size_t early() const noexcept { return early_bytes_; }

 private:
  /// The chunk that comes by a lane.
  struct Input {
    ChunkHead head{};
    std::size_t head_bytes = 0;
    std::uint64_t place = 0;  ///< Of the first byte that is in `kept`, or comes next.
    std::size_t left = 0;
    wire::Bytes kept{};  ///< What has come of it before its turn.
  };

  [[nodiscard]] bool begin(Input& input) const;
  [[nodiscard]] bool deliver_early(const Sink& sink);

  const std::size_t early_max_;
  std::uint64_t next_ = 0;
  std::vector<Input> inputs_;
  std::map<std::uint64_t, wire::Bytes> early_;  // whole chunks, by place
  std::size_t early_bytes_ = 0;
};

/// How many lanes a transfer should have: one, and if it lasts, all. To try a second one first, and to look whether it
/// helps, costs more than it saves: a lane that has just lost packets is slow for some round trips, and so are two. One
/// thread at a time.
class LaneGrowth {
 public:
  using Clock = std::chrono::steady_clock;
  /// A transfer lasts that has moved so much in no less than that time.
  static constexpr std::chrono::milliseconds interval{200};
  static constexpr std::uint64_t interval_bytes = std::uint64_t{1} << 20;

  /// `moved`: bytes of the stream so far.
  [[nodiscard]] std::size_t wanted(Clock::time_point now, std::uint64_t moved);

 private:
  Clock::time_point begun_{};  // since something has moved
  bool lasts_ = false;
};

}  // namespace aplib::launch::files
