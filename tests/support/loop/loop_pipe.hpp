// SPDX-License-Identifier: MIT
// ByteQueue: bytes in the order in which they came, in one piece of memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/module.hpp"
#include "loop/loop_memory.hpp"
#include "loop/loop_net.hpp"

namespace aplib::comm::loop {
/// Thread safety: none.
class ByteQueue {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size() - begin_; }

  /// Makes room for `more` bytes, so that append() of that many cannot throw. Throws std::bad_alloc, std::length_error.
  void reserve(std::size_t more) {
    if (bytes_.capacity() - bytes_.size() >= more) return;
    // Moves the rest to the start when it is no more than what was taken since. Otherwise moves it into half as much
    // memory again. Either way a byte moves only a few times.
    if (begin_ >= size()) drop_taken();
    if (bytes_.capacity() - bytes_.size() >= more) return;
    std::vector<std::byte> larger;
    larger.reserve((size() + more) + (size() + more) / 2);
    larger.assign(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes_.end());
    bytes_ = std::move(larger);
    begin_ = 0;
  }
  void append(std::span<const std::byte> more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  /// Copies the oldest bytes out and removes them.
  void take(std::span<std::byte> into) noexcept {
    if (into.empty()) return;
    std::memcpy(into.data(), bytes_.data() + begin_, into.size());
    begin_ += into.size();
    if (begin_ != bytes_.size()) return;
    begin_ = 0;
    bytes_.clear();
    if (bytes_.capacity() > kept_bytes) bytes_ = {};
  }
  /// Removes all but the oldest `left` bytes.
  void cut_to(std::size_t left) noexcept { bytes_.resize(begin_ + left); }
  /// The bytes from `at` on, counted from the oldest.
  [[nodiscard]] std::byte* at(std::size_t at) noexcept { return bytes_.data() + begin_ + at; }

 private:
  static constexpr std::size_t kept_bytes = 1024 * 1024;  // More is freed when the queue is empty.
  void drop_taken() noexcept {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }

  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

// LoopPipe: the stream of bytes from one process of a loop net to another, with its faults.
//
//   read by the receiver | visible to it | on the way, delayed | queued at the sender
//                     read_        visible_               way_                   all_        (bytes since the
//                     beginning)

/// Thread safety: any thread. Never calls out, so that its lock is innermost.
class LoopPipe {
 public:
  using Clock = std::chrono::steady_clock;

  /// `number`: the pair's.
  LoopPipe(const LoopFaults& faults, std::uint32_t number, std::uint64_t seed) noexcept
      : faults_(faults), random_(seed), memory_(std::uint64_t{number} << 32U), transfers_(faults, memory_, ~seed) {}

  // The sender's side.

  /// Queues a frame. False: dropped, because the stream has ended. Throws std::bad_alloc or std::length_error; then
  /// nothing has happened.
  bool send(const Label& label, std::span<const std::byte> body);
  /// Puts queued bytes on the way, as many as fit. Whether there were any.
  bool push();
  /// The ordered end: the mark goes on the way after everything queued, beyond the capacity if necessary.
  void end_in_order();
  [[nodiscard]] std::size_t queued() const noexcept { return queued_.load(std::memory_order_relaxed); }
  /// Whether push() would do something.
  [[nodiscard]] bool writable() const;

  /// Begins a write or a read in the receiver's memory, which fails when the stream has ended. Throws std::bad_alloc.
  void begin(const LoopTransfer& transfer);
  /// A write or read that is done and due to be reported. `first`: this is a new poll of the sender.
  [[nodiscard]] std::optional<LoopTransfers::Done> transfer_done(bool first) noexcept;
  /// Completes all of them now, or (ok = false) fails them.
  void end_transfers(bool ok) noexcept;
  /// The sender is gone, so nobody will ask how they ended.
  void forget_transfers() noexcept;
  /// When a poll would move one of them. Nothing: there are none.
  [[nodiscard]] std::optional<Clock::time_point> next_transfer() const;

  // The receiver's side.

  /// The memory that the receiver has opened to the sender.
  [[nodiscard]] LoopMemory& memory() noexcept { return memory_; }
  /// A poll of the receiver: what is due becomes visible. Whether there are bytes to read, or an end to see.
  bool poll();
  /// Copies visible bytes into `first`, then into `second`. Returns how many.
  std::size_t read(std::span<std::byte> first, std::span<std::byte> second);
  /// If everything was read and nothing more comes: the reason, for people.
  [[nodiscard]] std::optional<std::string> end_seen() const;
  /// What a sleeping receiver waits for: nothing, something that a poll would do now, or a time.
  struct Outlook {
    bool now = false;
    std::optional<Clock::time_point> later;
  };
  [[nodiscard]] Outlook outlook() const;
  /// The receiver reads no more: what comes is discarded.
  void close_reading();
  /// Whether nothing is queued or on the way, and no end is still to be seen.
  [[nodiscard]] bool quiet() const { return queued() == 0 && idle_.load() && !transferring_.load(); }

  // Faults.

  /// Ends the stream here: what is queued is lost and, with `anywhere`, also any part of what is on the way.
  void break_off(const std::string& why, bool anywhere);
  void corrupt_next() {
    const std::lock_guard lock(mutex_);
    corrupt_ = true;
  }

 private:
  struct Delay {
    std::uint64_t end;  // Bytes up to here become visible ...
    std::uint64_t poll;
    Clock::time_point time;  // ... in this poll, but not before this time.
  };

  std::uint64_t draw() noexcept;
  bool push_locked(std::size_t room);
  void put_on_the_way(std::size_t bytes);
  void note() noexcept;

  const LoopFaults& faults_;
  mutable std::mutex mutex_;
  std::uint64_t random_;
  ByteQueue bytes_;  // read_ .. all_
  std::uint64_t read_ = 0;
  std::uint64_t visible_ = 0;
  std::uint64_t way_ = 0;
  std::uint64_t all_ = 0;
  std::uint64_t polls_ = 0;
  std::deque<Delay> delays_;
  LoopMemory memory_;
  LoopTransfers transfers_;
  bool corrupt_ = false;
  bool ended_ = false;   // Nothing more is sent.
  bool closed_ = false;  // Nothing more is read.
  std::string why_;
  // Read without the lock, because usually there is nothing for either side.
  std::atomic<std::size_t> queued_{0};
  std::atomic<bool> idle_{true};  // Nothing is on the way, and no end is to be seen.
  std::atomic<bool> transferring_{false};
};

}  // namespace aplib::comm::loop
