// SPDX-License-Identifier: MIT
// ByteQueue: bytes in the order in which they came, in one piece of memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace aplib::comm {

/// Thread safety: none.
class ByteQueue {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size() - begin_; }

  /// Makes room for `more` bytes, so that append() of so many cannot throw. Throws std::bad_alloc, std::length_error.
  void reserve(std::size_t more) {
    if (bytes_.capacity() - bytes_.size() >= more) return;
    // Moves the rest to the front when it is no more than what was taken since; else into half as much memory again: either way a byte moves a few times at most.
    if (begin_ >= size()) drop_taken();
    if (bytes_.capacity() - bytes_.size() >= more) return;
    std::vector<std::byte> larger;
    larger.reserve((size() + more) + (size() + more) / 2);
    larger.assign(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes_.end());
    bytes_ = std::move(larger);
    begin_ = 0;
  }
  void append(std::span<const std::byte> more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  /// Copies the oldest bytes out, and forgets them.
  void take(std::span<std::byte> into) noexcept {
    if (into.empty()) return;
    std::memcpy(into.data(), bytes_.data() + begin_, into.size());
    begin_ += into.size();
    if (begin_ != bytes_.size()) return;
    begin_ = 0;
    bytes_.clear();
    if (bytes_.capacity() > kept_bytes) bytes_ = {};
  }
  /// Forgets all but the oldest `left` bytes.
  void cut_to(std::size_t left) noexcept { bytes_.resize(begin_ + left); }
  /// The bytes from `at` on, counted from the oldest.
  [[nodiscard]] std::byte* at(std::size_t at) noexcept { return bytes_.data() + begin_ + at; }

 private:
  static constexpr std::size_t kept_bytes = 1024 * 1024;  // More is given back when all is taken.
  void drop_taken() noexcept {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }

  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

}  // namespace aplib::comm
