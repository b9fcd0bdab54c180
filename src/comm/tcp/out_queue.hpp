// SPDX-License-Identifier: MIT
// OutQueue: the bytes of one connection that the system has not taken yet, in order. Small frames gather in its
// last chunk and go out together; the rest of a large body gets a chunk of its own.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "comm/frame.hpp"

namespace aplib::comm::tcp {

/// Thread safety: none; the connection's lock.
class OutQueue {
 public:
  static constexpr std::size_t chunk_bytes = 64 * 1024;

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }

  /// Copies both, one behind the other, to the end. Throws std::bad_alloc: then nothing was added.
  void append(std::span<const std::byte> first, std::span<const std::byte> second = {}) {
    const std::size_t all = first.size() + second.size();
    const std::size_t room = chunks_.empty() ? 0 : chunks_.back().capacity - chunks_.back().end;
    if (all > room) chunks_.push_back(make_chunk(all - room));
    const std::size_t last = chunks_.size() - 1;
    for (std::span<const std::byte> bytes : {first, second}) {
      if (all > room && last != 0) bytes = bytes.subspan(fill(chunks_[last - 1], bytes));
      fill(chunks_[last], bytes);
    }
    bytes_ += all;
  }

  /// The first bytes, as pieces for one system call. Returns how many pieces.
  [[nodiscard]] std::size_t front(std::span<iovec> pieces) const noexcept {
    std::size_t count = 0;
    for (auto chunk = chunks_.begin(); chunk != chunks_.end() && count < pieces.size(); ++chunk) {
      if (chunk->begin == chunk->end) continue;
      pieces[count++] = {chunk->bytes.get() + chunk->begin, chunk->end - chunk->begin};
    }
    return count;
  }

  /// The first `count` bytes are taken. Returns how many of `count` were the queue's: fewer when it had fewer.
  std::size_t remove(std::size_t count) noexcept {
    const std::size_t taken = std::min(count, bytes_);
    bytes_ -= taken;
    for (std::size_t left = taken; left != 0;) {
      Chunk& first = chunks_.front();
      const std::size_t part = std::min(left, first.end - first.begin);
      first.begin += part;
      left -= part;
      if (first.begin == first.end) recycle();
    }
    return taken;
  }

  void clear() noexcept {
    chunks_.clear();
    bytes_ = 0;
  }

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t capacity = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// Copies as much as fits; returns how much that is.
  static std::size_t fill(Chunk& chunk, std::span<const std::byte> bytes) noexcept {
    const std::size_t count = std::min(chunk.capacity - chunk.end, bytes.size());
    if (count != 0) std::memcpy(chunk.bytes.get() + chunk.end, bytes.data(), count);
    chunk.end += count;
    return count;
  }

  Chunk make_chunk(std::size_t at_least) {
    if (at_least <= chunk_bytes && spare_.bytes) return std::exchange(spare_, {});
    const std::size_t capacity = std::max(at_least, chunk_bytes);
    return {std::make_unique_for_overwrite<std::byte[]>(capacity), capacity};
  }

  /// One chunk of the usual size is kept, so that a steady stream allocates nothing.
  void recycle() noexcept {
    Chunk first = std::move(chunks_.front());
    chunks_.pop_front();
    if (first.capacity != chunk_bytes || spare_.bytes) return;
    first.begin = first.end = 0;
    spare_ = std::move(first);
  }

  std::deque<Chunk> chunks_;
  Chunk spare_;
  std::size_t bytes_ = 0;
};

// How a large body is split over the connections of a pair. Both sides know it from the number of bytes and of
// connections, so that the parts need no headers: on every connection they come in the order of the frames.
struct Split {
  /// Smaller bodies go by the first connection alone.
  static constexpr std::size_t from_bytes = 256 * 1024;

  struct Part {
    std::size_t offset;
    std::size_t bytes;
  };

  /// The part of connection `stream` of `streams`. That of the first is never smaller than the reader's buffer:
  /// what the reader finds behind the header there belongs to the body.
  [[nodiscard]] static constexpr Part part(std::size_t body_bytes, std::size_t streams, std::size_t stream) noexcept {
    if (streams <= 1 || body_bytes < from_bytes) return {0, stream == 0 ? body_bytes : 0};
    const std::size_t first = std::max(FrameReader::buffer_bytes, body_bytes / streams);
    if (stream == 0) return {0, first};
    const std::size_t rest = body_bytes - first;
    const std::size_t begin = rest * (stream - 1) / (streams - 1);
    return {first + begin, rest * stream / (streams - 1) - begin};
  }
};

}  // namespace aplib::comm::tcp
