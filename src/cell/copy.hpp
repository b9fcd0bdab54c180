// SPDX-License-Identifier: MIT
// Copies of message bodies: small ones in straight-line code, and large ones by two processors at once. The bytes of a
// body lie side by side, or as a front end knows (Form).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/spin_lock.hpp"

namespace aplib {

/// Copies exactly `bytes` <= 40, and reads and writes nothing beyond. It uses overlapping loads and stores instead of
/// loops: a call of memcpy with a variable size costs a few ns, which counts for a small message.
[[gnu::always_inline]] inline void copy_small(void* to, const void* from, std::size_t bytes) noexcept {
  auto* t = static_cast<char*>(to);
  const auto* f = static_cast<const char*>(from);
  if (bytes == 8) {
    __builtin_memcpy(t, f, 8);
  } else if (bytes > 16) {
    if (bytes > 32) {
      __builtin_memcpy(t, f, 16);
      __builtin_memcpy(t + 16, f + 16, 16);
    } else {
      __builtin_memcpy(t, f, 16);
    }
    __builtin_memcpy(t + bytes - 16, f + bytes - 16, 16);
  } else if (bytes > 8) {
    __builtin_memcpy(t, f, 8);
    __builtin_memcpy(t + bytes - 8, f + bytes - 8, 8);
  } else if (bytes >= 4) {
    __builtin_memcpy(t, f, 4);
    __builtin_memcpy(t + bytes - 4, f + bytes - 4, 4);
  } else {
    for (std::size_t i = 0; i < bytes; ++i) t[i] = f[i];
  }
}

/// Copies any number of bytes. The addresses of an empty message may be null.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

struct Side;

/// How the bytes of a body that do not lie side by side are found, in the order in which they travel. The front end's
/// own form is derived from it. Several threads may copy parts at the same time.
struct Form {
  /// Copies the bytes [first, first + bytes) of `from` to the same bytes of `to`. One of them has this form.
  void (*copy)(const Side& to, const Side& from, std::size_t first, std::size_t bytes) noexcept;
};

/// One side of a copy.
struct Side {
  char* address = nullptr;     ///< Where the bytes lie side by side; not used with a form.
  const Form* form = nullptr;  ///< Null: they do.
};

/// Copies the bytes [first, first + bytes) of `from` to the same bytes of `to`.
inline void copy_part(const Side& to, const Side& from, std::size_t first, std::size_t bytes) noexcept {
  const Form* const form = to.form != nullptr ? to.form : from.form;
  if (form != nullptr) return form->copy(to, from, first, bytes);
  copy_bytes(to.address + first, from.address + first, bytes);
}

/// Both sides of a copy.
struct Sides {
  Side to;
  Side from;
};

/// One large copy by two processors at once: the sender copies from the front, the receiver's processor from the back.
/// Either does it all alone when the other is busy.
///
/// Invariants: (1) claimed_ counts chunks handed out; a side that draws a number below chunk_count_ owns one more
/// chunk of its own end, so front and back chunks are exactly chunk_count_; (2) finished_ counts chunks copied
/// (release), and whoever reads chunk_count_ from it (acquire) sees every byte; (3) the sender's last access is one
/// more ticket on finished_; the receiver waits for it, and only then may the transfer be used again.
template <template <class> class Atom = std::atomic>
class Transfer {
 public:
  static constexpr std::size_t chunk_bytes_min = 16 * 1024;

  /// Sender, before it publishes the transfer.
  void begin(void* to, const void* from, std::size_t bytes) noexcept {
    to_ = static_cast<char*>(to);
    from_ = static_cast<const char*>(from);
    sides_ = nullptr;
    prepare(bytes);
  }
  /// The same. `sides` stay until the copy is over.
  void begin(const Sides& sides, std::size_t bytes) noexcept {
    sides_ = &sides;
    prepare(bytes);
  }

  /// Sender: copies until no chunk is left, then waits for the other side's last chunk. Afterwards it must not
  /// touch the transfer.
  void copy_from_front() noexcept {
    for (std::uint32_t i = 0; claim(); ++i) copy(i);
    wait(chunk_count_);
    finished_.fetch_add(1, std::memory_order_release);  // invariant (3)
  }

  /// Receiver's processor: the same from the other end. Afterwards the transfer is free.
  void copy_from_back() noexcept {
    for (std::uint32_t i = chunk_count_; claim();) copy(--i);
    wait(chunk_count_ + 1);  // invariant (3)
  }

 private:
  void prepare(std::size_t bytes) noexcept {
    bytes_ = bytes;
    chunk_bytes_ = std::max(chunk_bytes_min, (bytes / 16 + 4095) & ~std::size_t{4095});
    chunk_count_ = static_cast<std::uint32_t>((bytes + chunk_bytes_ - 1) / chunk_bytes_);
    claimed_.store(0, std::memory_order_relaxed);   // published by the ring's release
    finished_.store(0, std::memory_order_relaxed);  // same
  }

  bool claim() noexcept {
    return claimed_.fetch_add(1, std::memory_order_relaxed) < chunk_count_;  // relaxed: only a ticket
  }

  void copy(std::uint32_t chunk) noexcept {
    const std::size_t start = std::size_t{chunk} * chunk_bytes_;
    const std::size_t bytes = std::min(chunk_bytes_, bytes_ - start);
    if (sides_ == nullptr) {
      std::memcpy(to_ + start, from_ + start, bytes);
    } else {
      copy_part(sides_->to, sides_->from, start, bytes);
    }
    finished_.fetch_add(1, std::memory_order_release);  // invariant (2)
  }

  // At most one chunk's copy away, unless the other side has lost its core. Acquire: invariant (2).
  void wait(std::uint32_t count) const noexcept {
    for (SpinWait spin; finished_.load(std::memory_order_acquire) < count;) spin.pause();
  }

  char* to_;
  const char* from_;
  const Sides* sides_;  // null: side by side, at to_ and from_
  std::size_t bytes_;
  std::size_t chunk_bytes_;
  std::uint32_t chunk_count_;
  Atom<std::uint32_t> claimed_;
  Atom<std::uint32_t> finished_;
};

}  // namespace aplib
