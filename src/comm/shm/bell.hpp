// SPDX-License-Identifier: MIT
// Bell: what the threads of this process sleep on, and how other processes wake them.
//
//   sleeper:  asleep = a new odd number     FENCE (heavy)   look whether there is something to do, sleep
//   waker:    publish a slot, or room       FENCE (light)   look whether it is asleep, ring
//
// Either the sleeper sees what was published, or the waker sees that it is asleep. The heavy side pays for both:
// MEMBARRIER_CMD_GLOBAL_EXPEDITED makes every running thread of every process that has registered pass a fence.
// Where one of the two could not register, its waker pays with a real one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

#include "comm/shm/segment.hpp"
#include "comm/shm/shared_memory.hpp"

namespace aplib::comm::shm {

/// Thread safety: any thread.
class Bell {
 public:
  /// Throws Error(exhausted).
  Bell();

  /// From here on peers ring. After it the sleeper must look for something to do once more. Then disarm(), always.
  void arm() noexcept;
  void disarm() noexcept;
  /// Between the two: sleeps until someone rings or the time is over.
  void sleep(std::optional<std::chrono::nanoseconds> timeout) const noexcept;
  /// Ends all sleeps, or else the next one. Async-signal-safe.
  void ring() noexcept;
  /// After something was made that poll() shall find: wakes who sleeps.
  void ring_if_armed() noexcept;

  /// For peers.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] const SharedMemory& board_memory() const noexcept { return board_; }
  [[nodiscard]] Board& board() const noexcept { return *static_cast<Board*>(board_.data()); }
  /// Our wakers and sleepers pass the fences of others.
  [[nodiscard]] bool has_barrier() const noexcept { return has_barrier_; }

 private:
  const bool has_barrier_;
  os::UniqueFd descriptor_;
  SharedMemory board_;
  std::mutex mutex_;
  std::uint32_t armed_ = 0;
};

/// The bell of another process.
class PeerBell {
 public:
  PeerBell() = default;
  void attach(SharedMemory its_board, os::UniqueFd descriptor, bool light) noexcept {
    board_ = std::move(its_board);
    descriptor_ = std::move(descriptor);
    light_ = light;
    asleep_ = &board()->asleep;
  }

  /// After something was published. Any thread.
  void ring_if_asleep() noexcept {
    if (light_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the sleeper's barrier orders the processor
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);  // own publication before own look
    }
    const std::uint32_t asleep = asleep_->load(std::memory_order_relaxed);  // the fence orders it
    if ((asleep & 1U) != 0) [[unlikely]]
      ring(asleep);
  }
  [[nodiscard]] const Board* board() const noexcept { return static_cast<const Board*>(board_.data()); }
  [[nodiscard]] std::uint64_t rings() const noexcept { return rings_.load(std::memory_order_relaxed); }

 private:
  void ring(std::uint32_t asleep) noexcept;

  const std::atomic<std::uint32_t>* asleep_ = nullptr;
  bool light_ = false;
  std::atomic<std::uint32_t> rung_{0};  // For which sleep.
  std::atomic<std::uint64_t> rings_{0};
  SharedMemory board_;
  os::UniqueFd descriptor_;
};

}  // namespace aplib::comm::shm
