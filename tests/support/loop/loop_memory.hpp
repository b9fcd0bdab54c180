// SPDX-License-Identifier: MIT
// LoopMemory: the memory that one process of a loop net has opened to another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/module.hpp"
#include "loop/loop_net.hpp"

namespace aplib::comm::loop {
/// Thread safety: any thread. Never calls out. Copies are made under the lock, so that memory is not touched after
/// conceal() has returned.
class LoopMemory {
 public:
  /// `first`: the number of the first opening; 2^32 are this pair's.
  explicit LoopMemory(std::uint64_t first) noexcept : next_(first) {}

  /// Throws std::bad_alloc.
  [[nodiscard]] MemoryKey open(std::span<std::byte> memory);
  void conceal(const MemoryKey& key) noexcept;
  /// The process is gone, and so is its memory.
  void conceal_all() noexcept;

  /// These copy into, or out of, the memory that `key` opens. False: it does not open `whole` bytes there, and nothing
  /// is copied.
  bool copy_in(const MemoryKey& key, std::uint64_t address, std::span<const std::byte> from,
               std::size_t whole) noexcept;
  bool copy_out(const MemoryKey& key, std::uint64_t address, std::span<std::byte> into, std::size_t whole) noexcept;

 private:
  [[nodiscard]] std::byte* find(const MemoryKey& key, std::uint64_t address, std::size_t bytes) noexcept;

  std::mutex mutex_;
  std::map<std::uint64_t, std::span<std::byte>> open_;  // By number, which no other opening ever has.
  std::uint64_t next_;
};

// LoopTransfers: writes and reads by one process in the memory of another, with delays. They overtake each other and
// frames, and can be seen in pieces.

/// One write() or read().
struct LoopTransfer {
  bool writes;
  MemoryKey key;
  std::uint64_t address;
  std::byte* local;  ///< A write only reads it.
  std::size_t bytes;
  std::uint64_t context;
};

/// Thread safety: none (guarded by the pipe's lock). `memory` is the peer's.
class LoopTransfers {
 public:
  using Clock = std::chrono::steady_clock;
  struct Done {
    std::uint64_t context;
    bool ok;
  };

  LoopTransfers(const LoopFaults& faults, LoopMemory& memory, std::uint64_t seed) noexcept
      : faults_(faults), memory_(memory), random_(seed) {}

  /// `behind`: the number of bytes of frames sent before. Throws std::bad_alloc; then nothing has happened.
  void begin(const LoopTransfer& transfer, std::uint64_t behind);
  /// Frames up to byte `end` are received now, so the writes before them are completed.
  void finish_writes_before(std::uint64_t end) noexcept;
  /// Completes all transfers now.
  void finish() noexcept;
  /// Fails all transfers that are not done.
  void fail() noexcept;
  void forget() noexcept { under_way_.clear(); }
  /// A poll by the process that began them: moves what is due, and takes out what is done and due to be reported.
  [[nodiscard]] std::optional<Done> poll() noexcept;
  void count_poll() noexcept { ++polls_; }

  [[nodiscard]] bool empty() const noexcept { return under_way_.empty(); }
  /// When a poll would bring something; a time in the past means now. Nothing: there are no transfers.
  [[nodiscard]] std::optional<Clock::time_point> next() const noexcept;

 private:
  struct UnderWay {
    LoopTransfer transfer;
    std::uint64_t behind;
    std::size_t moved = 0;
    std::optional<bool> ok{};  // Set when it is done.
    std::uint64_t due_poll = 0;
    Clock::time_point due_time{};
  };

  std::uint64_t draw() noexcept;
  void delay(UnderWay& one) noexcept;
  [[nodiscard]] bool due(const UnderWay& one) const noexcept;
  void move(UnderWay& one, std::size_t bytes) noexcept;
  void step(UnderWay& one) noexcept;

  const LoopFaults& faults_;
  LoopMemory& memory_;
  std::uint64_t random_;
  std::uint64_t polls_ = 0;
  std::vector<UnderWay> under_way_;
};

}  // namespace aplib::comm::loop
