// SPDX-License-Identifier: MIT
// Lease: a large message whose body stays in its sender's memory until it is received. It lies in rings, backlogs and
// mailboxes as any other buffer does, so order, matching and moves of cells know nothing of it.
//
//   sender:    offered ------------------------------> held ----> aside    it takes the memory back
//   receiver:  offered -> taken: both sides copy (Transfer)   or, from aside: from there
//
// Invariants: (1) the sender's memory is read only by the receiver that has taken the lease, and by the sender; (2)
// whoever finds `taken` or `aside` (acquire) sees what was written before (release): the transfer, or the body aside;
// (3) the receiver's word that it has taken the lease comes to the sender's cell as a ring entry (lease_taken), with
// which it frees the lease; of a lease that is aside the receiver frees both; (4) `sent` is touched only by the
// processor that carries the sender's cell.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/spin_lock.hpp"
#include "cell/buffer_pool.hpp"

namespace aplib {

struct Posted;

/// From this size on a lease pays,
inline constexpr std::size_t lend_from_bytes = 32 * 1024;
/// and from this one where too much waits to be received, so that a copy would have to wait.
inline constexpr std::size_t lend_when_full_from_bytes = 1024;

template <template <class> class Atom = std::atomic>
class LeaseState {
 public:
  /// Receiver: true: the sender's memory is its own to read until the copy is over. False: the body is aside.
  bool take() noexcept {
    std::uint32_t seen = offered;
    if (state_.compare_exchange_strong(seen, taken, std::memory_order_acq_rel, std::memory_order_acquire))  // (2)
      return true;
    for (SpinWait spin; state_.load(std::memory_order_acquire) != aside;) spin.pause();  // a copy away; invariant (2)
    return false;
  }
  /// Sender: true: put_aside() follows. False: the receiver copies already.
  bool hold() noexcept {
    std::uint32_t seen = offered;
    return state_.compare_exchange_strong(seen, held, std::memory_order_acq_rel, std::memory_order_acquire);  // (2)
  }
  void put_aside() noexcept { state_.store(aside, std::memory_order_release); }  // invariant (2)

 private:
  static constexpr std::uint32_t offered = 0;
  static constexpr std::uint32_t taken = 1;
  static constexpr std::uint32_t held = 2;
  static constexpr std::uint32_t aside = 3;
  Atom<std::uint32_t> state_{offered};
};

struct Lease {
  LeaseState<> state;
  Sides sides;              ///< `from`: the sender's memory.
  Posted* sent = nullptr;   ///< What the sender waits for; null: nothing any more.
  Buffer* aside = nullptr;  ///< The body, once the sender has its memory back; null without memory: the machine fails.
};
static_assert(sizeof(Lease) <= BufferPool::smallest_body);

}  // namespace aplib
