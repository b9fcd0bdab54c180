// SPDX-License-Identifier: MIT
// Copies of message bodies: small ones in straight-line code, and large ones by two processors at once. The bytes of a
// body lie side by side, or as a front end knows (Form).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "arch/cpu.hpp"
#include "base/spin_lock.hpp"

namespace aplib {

inline constexpr std::size_t small_bytes_max = 40;

/// Copies exactly `bytes` <= small_bytes_max, and reads and writes nothing beyond. It uses overlapping loads and stores
/// instead of loops: a call of memcpy with a variable size costs a few ns, which counts for a small message.
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
  if (bytes != 0) copy_long(to, from, bytes);
}

/// The same, inlined where they are few.
[[gnu::always_inline]] inline void copy_body(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes <= small_bytes_max) {
    copy_small(to, from, bytes);
  } else {
    copy_long(to, from, bytes);
  }
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
/// Either does it all alone when the other is busy. The receiver may find only then where the bytes are wanted, and
/// redirect them.
///
/// Invariants: (1) claimed_ counts chunks handed out; a side that draws a number below chunk_count_ owns one more
/// chunk of its own end, so front and back chunks are exactly chunk_count_; (2) finished_ counts chunks copied
/// (release), and whoever reads chunk_count_ from it (acquire) sees every byte; (3) the sender's last access is one
/// more ticket on finished_; the receiver waits for it, and only then may the transfer be used again; (4) to_ changes
/// at most once, before the receiver copies: what lies at the first place then are the sender's first strays_ chunks.
template <template <class> class Atom = std::atomic>
class Transfer {
 public:
  static constexpr std::size_t chunk_bytes_min = 16 * 1024;

  /// Sender, before it publishes the transfer.
  void begin(void* to, const void* from, std::size_t bytes) noexcept {
    from_ = static_cast<const char*>(from);
    sides_ = nullptr;
    prepare(static_cast<char*>(to), bytes);
  }
  /// The same. `sides` stay until the copy is over.
  void begin(const Sides& sides, std::size_t bytes) noexcept {
    sides_ = &sides;
    prepare(nullptr, bytes);
  }

  /// Sender: copies until no chunk is left, then waits for the other side's last chunk. Afterwards it must not
  /// touch the transfer.
  void copy_from_front() noexcept {
    for (std::uint32_t i = 0; claim(); ++i) {
      char* const to = to_.load(std::memory_order_acquire);  // acquire: what the receiver did with that memory before
      if (to == first_to_) strays_ = static_cast<std::uint16_t>(i + 1);
      copy(i, to);
    }
    wait(chunk_count_);
    finished_.fetch_add(1, std::memory_order_release);  // invariant (3)
  }
  /// Sender: waits until the receiver copies, or has been looked for so many times.
  void await_receiver(std::size_t looks) const noexcept {
    while (looks-- != 0 && claimed_.load(std::memory_order_relaxed) == 0) cpu_relax();  // relaxed: a look
  }

  /// Receiver's processor: the same from the other end. Afterwards the transfer is free.
  void copy_from_back() noexcept {
    char* const to = to_.load(std::memory_order_relaxed);  // relaxed: only we change it
    for (std::uint32_t i = chunk_count_; claim();) copy(--i, to);
    wait(chunk_count_ + 1);  // invariant (3)
  }
  /// The same with another place for the bytes, to which the sender copies, too, as soon as it knows. REQUIRES: the
  /// bytes lie side by side.
  void copy_from_back_to(char* to) noexcept {
    to_.store(to, std::memory_order_release);  // release: pairs with copy_from_front()
    copy_from_back();
    copy_bytes(to, first_to_, std::min(bytes_, strays_ * chunk_bytes()));  // invariant (4)
  }

 private:
  void prepare(char* to, std::size_t bytes) noexcept {
    bytes_ = bytes;
    chunk_units_ = static_cast<std::uint32_t>(std::max(chunk_bytes_min, bytes / 16 + unit - 1) / unit);
    chunk_count_ = static_cast<std::uint16_t>((bytes + chunk_bytes() - 1) / chunk_bytes());
    strays_ = 0;
    first_to_ = to;
    to_.store(to, std::memory_order_relaxed);       // published by the ring's release
    claimed_.store(0, std::memory_order_relaxed);   // same
    finished_.store(0, std::memory_order_relaxed);  // same
  }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_units_ * unit; }

  bool claim() noexcept {
    return claimed_.fetch_add(1, std::memory_order_relaxed) < chunk_count_;  // relaxed: only a ticket
  }

  void copy(std::uint32_t chunk, char* to) noexcept {
    const std::size_t start = chunk * chunk_bytes();
    const std::size_t bytes = std::min(chunk_bytes(), bytes_ - start);
    if (sides_ == nullptr) {
      copy_long(to + start, from_ + start, bytes);
    } else {
      copy_part(sides_->to, sides_->from, start, bytes);
    }
    finished_.fetch_add(1, std::memory_order_release);  // invariant (2)
  }

  // At most one chunk's copy away, unless the other side has lost its core. Acquire: invariant (2).
  void wait(std::uint32_t count) const noexcept {
    for (SpinWait spin; finished_.load(std::memory_order_acquire) < count;) spin.pause();
  }

  static constexpr std::size_t unit = 4096;

  const char* from_;
  const Sides* sides_;  // null: side by side, at to_ and from_
  char* first_to_;
  Atom<char*> to_;
  std::size_t bytes_;
  std::uint32_t chunk_units_;
  std::uint16_t chunk_count_;  // at most 16
  std::uint16_t strays_;       // the sender's, until its last ticket
  Atom<std::uint32_t> claimed_;
  Atom<std::uint32_t> finished_;
};

}  // namespace aplib
