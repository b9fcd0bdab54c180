// SPDX-License-Identifier: MIT
// Inflow: the stream of a long link as it comes, in pieces of any order, by several lanes, and some of it twice. Pieces
// whose turn it is go to the reader of frames. Those of the large body that the reader is in go straight to their place
// there; others are kept until their turn comes. Pure logic: it knows no sockets.
//
// Invariants:
// (1) What is kept lies behind `taken`, without overlaps, within Outflow::window_bytes.
// (2) What lies in place already is of the body that the reader is in: its memory is the receiver's until the stream
//     has come to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/frame.hpp"
#include "comm/tcp/chunk.hpp"

namespace aplib::comm::tcp {

/// Thread safety: none; the thread that polls. take(), in_place() and go_on() make the reader's upcalls.
class Inflow {
 public:
  /// So much of small frames is delivered between two calls of begin(), and one piece more.
  static constexpr std::size_t delivered_at_once = 64 * 1024;
  /// Pieces that are kept. Chunks below Outflow::other_lanes_from_bytes stay in order and are joined, so that a peer
  /// that keeps the rules needs some thousands.
  static constexpr std::size_t pieces_max = 16 * 1024;
  /// The other side hears of what was taken when it is so much.
  static constexpr std::uint64_t acknowledge_every = 128 * 1024;

  Inflow() = default;
  Inflow(const Inflow&) = delete;
  Inflow& operator=(const Inflow&) = delete;

  /// Who reads the frames, and outlives this. Without one, all is kept, or discarded.
  void read_by(FrameReader& reader) noexcept { reader_ = &reader; }
  /// A poll begins. What is not wanted is kept; so the other side sends no more than its window.
  void begin(bool wanted) noexcept {
    wanted_ = wanted && reader_ != nullptr;
    room_ = delivered_at_once;
  }
  /// From here on all is taken, and nobody hears of it.
  void discard();

  /// A chunk begins. What is wrong with it, for people; "": nothing.
  [[nodiscard]] std::string objection(const Chunk& chunk);
  /// Where the next bytes of the chunk may be read straight to. Empty: nowhere. Valid until the next call.
  [[nodiscard]] std::span<std::byte> place(std::uint64_t offset, std::size_t bytes) const noexcept;
  /// So many bytes lie there. False: the reader, or this, refuses the stream. Throws std::bad_alloc.
  [[nodiscard]] bool in_place(std::uint64_t offset, std::size_t bytes) { return arrived(offset, bytes, nullptr, 0); }
  /// Bytes that have come; `more` of the same chunk follow. False as above. Throws std::bad_alloc.
  [[nodiscard]] bool take(std::uint64_t offset, std::span<const std::byte> bytes, std::size_t more) {
    return arrived(offset, bytes.size(), bytes.data(), more);
  }
  /// Delivers what has been kept and whose turn has come. False as above.
  [[nodiscard]] bool go_on();
  /// go_on() has something to do.
  [[nodiscard]] bool stands_ready() const noexcept {
    return wanted_ && !kept_.empty() && kept_.begin()->first <= taken_;
  }

  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
  /// All of the stream was taken.
  [[nodiscard]] bool complete() const noexcept { return end_ && taken_ == *end_; }
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

  /// Whether the other side is to be told of what was taken, and that it is told now.
  [[nodiscard]] bool owes() const noexcept { return owes_ || taken_ - told_ >= acknowledge_every; }
  void owe() noexcept { owes_ = true; }
  [[nodiscard]] std::uint64_t tell() noexcept {
    owes_ = false;
    return told_ = taken_;
  }

  /// Bytes and pieces that are kept.
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_bytes_; }
  [[nodiscard]] std::size_t pieces() const noexcept { return kept_.size(); }

 private:
  struct Piece {
    std::size_t size = 0;
    std::size_t capacity = 0;
    std::unique_ptr<std::byte[]> bytes{};  // Null: they lie in place.
  };
  [[nodiscard]] bool arrived(std::uint64_t offset, std::size_t bytes, const std::byte* at, std::size_t more);
  [[nodiscard]] bool deliver(const std::byte* at, std::size_t bytes);
  [[nodiscard]] bool keep(std::uint64_t offset, std::size_t bytes, const std::byte* at, std::size_t more);
  [[nodiscard]] bool keep_piece(std::uint64_t offset, std::size_t bytes, const std::byte* at, std::size_t more);
  [[nodiscard]] Piece* before(std::uint64_t offset) noexcept;

  FrameReader* reader_ = nullptr;
  std::map<std::uint64_t, Piece> kept_;  // By offset.
  std::size_t kept_bytes_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t told_ = 0;
  std::optional<std::uint64_t> end_;
  std::size_t room_ = 0;
  bool wanted_ = false;
  bool discards_ = false;
  bool owes_ = false;
  std::string refusal_;
};

}  // namespace aplib::comm::tcp
