// SPDX-License-Identifier: MIT
// Turn: a thread that waits for a cell's baton (Turns), and sleeps until it is given a sign.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "cell/cell.hpp"

namespace aplib {

/// Os: `relax()`, `wait(word, expected, timeout)` and `wake(word)`.
template <template <class> class Atom, class Os>
struct Turn {
  /// What the thread is told.
  enum class Sign : std::uint32_t {
    none,
    look,     ///< It is free, or was a moment ago: look for it.
    given,    ///< You have it.
    refused,  ///< It is closed.
    asleep    ///< None, and the thread sleeps.
  };
  static constexpr auto for_ever = std::chrono::nanoseconds::max();
  /// How long to wait for a sign.
  struct Rest {
    std::uint32_t spins = 0;
    std::chrono::nanoseconds sleep = for_ever;  ///< Then.
  };

  Clock::time_point since{};  ///< It has stood in line.
  bool wants = false;         ///< To begin a call, or to go on with one whose wait has ended; else to poll.
  bool stands_by = false;     ///< It stands in line to poll, and looks for the baton in a moment.

  void give(Sign what, const Os& os) noexcept {
    // release: all that the giver did. The turn may be gone after this; a wake-up too many does no harm.
    const std::uint32_t before = sign_.exchange(static_cast<std::uint32_t>(what), std::memory_order_release);
    if (before == static_cast<std::uint32_t>(Sign::asleep)) os.wake(sign_);
  }

  /// None: the rest is over.
  [[nodiscard]] Sign await(const Rest& rest, const Os& os) noexcept {
    constexpr auto none = static_cast<std::uint32_t>(Sign::none);
    constexpr auto asleep = static_cast<std::uint32_t>(Sign::asleep);
    for (std::uint32_t spin = 0; spin < rest.spins && sign_.load(std::memory_order_relaxed) == none; ++spin)  // a hint
      os.relax();
    std::uint32_t now = none;
    if (rest.sleep.count() != 0)
      sign_.compare_exchange_strong(now, asleep, std::memory_order_acquire);  // acquire: what the giver did, ...
    while ((now = sign_.load(std::memory_order_acquire)) == asleep) {         // ... as here
      os.wait(sign_, asleep, rest.sleep == for_ever ? std::nullopt : std::optional(rest.sleep));
      now = asleep;
      // relaxed: nothing was given
      if (rest.sleep != for_ever && sign_.compare_exchange_strong(now, none, std::memory_order_relaxed))
        return Sign::none;
    }
    if (now != none) sign_.store(none, std::memory_order_relaxed);  // relaxed: own until the thread is in a line again
    return static_cast<Sign>(now);
  }

  struct Line {
    Turn* first = nullptr;
    Turn* last = nullptr;

    void push(Turn& turn) noexcept {
      turn.next_ = nullptr;
      (first == nullptr ? first : last->next_) = &turn;
      last = &turn;
    }
    void push_front(Turn& turn) noexcept {
      turn.next_ = first;
      if (first == nullptr) last = &turn;
      first = &turn;
    }
    Turn* pop() noexcept {
      Turn* const turn = first;
      if (turn != nullptr) first = turn->next_;
      return turn;
    }
    bool remove(const Turn& turn) noexcept {
      Turn* before = nullptr;
      for (Turn* each = first; each != nullptr; before = each, each = each->next_) {
        if (each != &turn) continue;
        (before == nullptr ? first : before->next_) = each->next_;
        if (last == each) last = before;
        return true;
      }
      return false;
    }
  };

 private:
  Atom<std::uint32_t> sign_{0};  // a Sign
  Turn* next_ = nullptr;         // in a line
};

}  // namespace aplib
