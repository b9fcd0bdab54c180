// SPDX-License-Identifier: MIT
// Turns: which of a program's threads has its cell's baton, and who gets it next (Baton says what it is for).
//
// A baton that is laid down is free: whoever comes first takes it. To hand it to a thread that sleeps, or that the
// system has taken off its core, would let all others wait until that thread runs, at every call (a convoy). So
// one of those that stand in line is woken to look for it; it is given the baton only when it has stood there for a
// millisecond.
//
// A thread whose call waits, and which lays the baton down for another, stands by: it looks for the baton again in a
// moment, so that the other one, which seldom stays away for long, need not wake anybody when it leaves its call. Where
// threads wait for each other's messages, one wake-up a message is left.
//
// Invariants: (1) one thread at most has the baton; (2) as long as a call waits, somebody has the baton, is awake and
// looks for it, or stands by and looks for it in a moment; (3) `wanted` says how many threads want the baton, other
// than to poll.
//
// Tests put a model in the place of the operating system (Os) and of the atomics.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

#include "cell/turn.hpp"

namespace aplib {

/// Os: a type Mutex, the clock `now()`, what Turn asks for, and `wake_poller()`, which wakes who has the baton and
/// sleeps.
template <template <class> class Atom, class Os>
class Turns {
 public:
  using Turn = aplib::Turn<Atom, Os>;
  using Sign = typename Turn::Sign;
  using Rest = typename Turn::Rest;

  /// The caller has the baton. `spins`: before a thread sleeps that waits for it. `standby`: how long a thread stands
  /// by.
  Turns(const Os& os, Atom<std::uint32_t>& wanted, std::uint32_t spins, const Rest& standby)
      : os_(os), wanted_(wanted), spins_(spins), standby_(standby) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// For a call that begins or goes on. False: it is closed.
  [[nodiscard]] bool take(Turn& turn) noexcept {
    if (try_take()) return true;
    {
      const std::lock_guard lock(mutex_);
      if (is_closed_) return false;
      turn.wants = true;
      ++awake_;
      want(1);
    }
    os_.wake_poller();
    return await_turn(turn, true, false);
  }

  /// At the end of a call, where no wait of another has ended. False: somebody waits for the baton, lay_down() it.
  [[nodiscard]] bool try_lay_down() noexcept {
    std::uint32_t state = taken;
    // release: all that we did, to who takes it
    return state_.compare_exchange_strong(state, 0, std::memory_order_release, std::memory_order_relaxed);
  }

  /// At the end of a call. `next_ready()`: the turn of a call whose wait has ended; null: there is none more.
  template <class NextReady>
  void lay_down(NextReady next_ready) noexcept {
    std::pair<Turn*, Sign> told;
    {
      const std::lock_guard lock(mutex_);
      while (Turn* const ready = next_ready()) call_ready(*ready);
      told = lay_down_locked();
    }
    if (told.first != nullptr) told.first->give(told.second, os_);
  }

  /// Of a call that waits, or lets others go first (`yields`). True: its wait has ended. False: it has the baton, and
  /// is to poll on. A call that has waited when the baton is closed never returns. `next_ready` as for lay_down(); the
  /// wait of `mine` may have ended, too.
  template <class NextReady>
  [[nodiscard]] bool pass_on(Turn& mine, bool yields, NextReady next_ready) noexcept {
    bool runs = false;
    std::pair<Turn*, Sign> told;
    {
      const std::lock_guard lock(mutex_);
      while (Turn* const ready = next_ready()) {
        if (ready == &mine) {
          runs = true;
        } else {
          call_ready(*ready);
        }
      }
      if (runs && !(yields && is_wanted())) {
        show_attention();  // of those that are ready, too
        return true;
      }
      if (!is_wanted()) return false;
      if (!runs) {
        mine.wants = false;
        pollers_.push(mine);
        stand_by(mine, true);
      }
      ++waits_;
      told = lay_down_locked();
    }
    if (told.first != nullptr) told.first->give(told.second, os_);
    bool has = runs ? take(mine) : await_turn(mine, false, true);
    while (!has) has = await_turn(mine, false, false);
    --waits_;
    return runs || mine.wants;
  }

  /// Call from: who has the baton. Calls wait that are not its own.
  [[nodiscard]] bool has_waits() const noexcept { return waits_ != 0; }
  [[nodiscard]] bool is_wanted() const noexcept {
    return wanted_.load(std::memory_order_relaxed) != 0;  // relaxed: mutex_ orders the rest
  }
  /// Call from: the thread that closes it.
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_; }

  /// Call from: who has the baton, and keeps it. Those that want it are refused; those whose calls wait sleep on.
  void close() noexcept {
    typename Turn::Line refused;
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
      refused = line_;
      line_ = {};
      wanted_.store(0, std::memory_order_relaxed);  // relaxed: nobody asks any more
    }
    while (Turn* const turn = refused.pop()) turn->give(Sign::refused, os_);
  }

 private:
  static constexpr std::uint32_t spins_between_looks_max = 32;
  static constexpr auto patience = std::chrono::milliseconds(1);
  // Of state_.
  static constexpr std::uint32_t taken = 1;      // somebody has the baton
  static constexpr std::uint32_t attention = 2;  // who lays it down gives a sign: threads wait, and none is awake

  [[nodiscard]] bool try_take() noexcept {
    std::uint32_t state = state_.load(std::memory_order_relaxed);  // relaxed: a hint
    while ((state & taken) == 0) {
      // acquire: what the last to have it did; relaxed: nothing came of it
      if (state_.compare_exchange_weak(state, state | taken, std::memory_order_acquire, std::memory_order_relaxed))
        return true;
    }
    return false;
  }

  // Looks rarer and rarer, so as not to take the cache line from those that have more luck.
  [[nodiscard]] bool look_for_it() noexcept {
    std::uint32_t pause = 1;
    for (std::uint32_t spin = 0; spin < spins_; spin += pause) {
      if (try_take()) return true;
      pause = std::min(2 * pause, spins_between_looks_max);
      for (std::uint32_t each = 0; each < pause; ++each) os_.relax();
    }
    return false;
  }

  /// Returns with the baton; false: it is closed. `looks`: the thread is one of awake_; else it stands in a line, and
  /// perhaps by.
  [[nodiscard]] bool await_turn(Turn& turn, bool looks, bool stands_by) noexcept {
    bool was_in_line = !looks;
    Rest rest = stands_by ? standby_ : Rest{};
    while (true) {
      if (looks) {
        const bool has = look_for_it();
        const Clock::time_point now = has ? Clock::time_point{} : os_.now();
        const std::lock_guard lock(mutex_);
        --awake_;
        if (is_closed_) return false;
        if (has || try_take_at_last()) {
          if (turn.wants) want(-1);
          show_attention();
          return true;
        }
        stand_in_line(turn, was_in_line, now);
        rest = turn.stands_by ? standby_ : Rest{};
      }
      const Sign sign = turn.await(rest, os_);
      if (sign == Sign::given || sign == Sign::refused) return sign == Sign::given;
      if (sign == Sign::none && ends_standby(turn)) return true;
      looks = sign == Sign::look;
      was_in_line = true;
      rest = Rest{.spins = spins_};
    }
  }

  // True: it has the baton, which was free.
  [[nodiscard]] bool ends_standby(Turn& turn) noexcept {
    const std::lock_guard lock(mutex_);
    if (!turn.stands_by) return false;  // a sign is on its way, or it stands in line_
    stand_by(turn, false);
    const bool has = !is_closed_ && try_take_at_last();
    if (has) pollers_.remove(turn);
    show_attention();
    return has;
  }

  // ------------------------------------------------------------- with mutex_ held

  // Who lays it down after this gives a sign; who has just done so may not have.
  [[nodiscard]] bool try_take_at_last() noexcept {
    state_.fetch_or(attention, std::memory_order_relaxed);  // relaxed: mutex_ orders it
    return try_take();
  }

  void stand_by(Turn& turn, bool does) noexcept {
    if (turn.stands_by == does) return;
    turn.stands_by = does;
    standing_by_ += does ? 1 : -1;
  }

  void stand_in_line(Turn& turn, bool again, Clock::time_point now) noexcept {
    typename Turn::Line& line = turn.wants ? line_ : pollers_;
    if (again) {
      line.push_front(turn);
    } else {
      turn.since = now;
      line.push(turn);
    }
    if (!turn.wants) stand_by(turn, true);
    is_starving_ = line_.first != nullptr && now - line_.first->since >= patience;
    show_attention();
  }

  void want(int more) noexcept {
    // relaxed: mutex_ orders it, and wake_poller() before a sleep
    wanted_.store(wanted_.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(more),
                  std::memory_order_relaxed);
  }

  void show_attention() noexcept {
    const bool some = line_.first != nullptr || (pollers_.first != nullptr && standing_by_ == 0);
    if (is_starving_ || (some && awake_ == 0)) {
      state_.fetch_or(attention, std::memory_order_relaxed);  // relaxed: who sees it asks under mutex_
    } else {
      state_.fetch_and(~attention, std::memory_order_relaxed);  // relaxed: as above
    }
  }

  // Its wait has ended.
  void call_ready(Turn& turn) noexcept {
    turn.since = os_.now();
    if (pollers_.remove(turn)) line_.push(turn);  // else its thread looks for the baton
    stand_by(turn, false);
    turn.wants = true;
    want(1);
  }

  /// Whoever has the baton has it no longer. Whom to give which sign once mutex_ is free; null: nobody.
  [[nodiscard]] std::pair<Turn*, Sign> lay_down_locked() noexcept {
    Turn* next = nullptr;
    if (awake_ == 0 || is_starving_) {
      next = line_.pop();
      if (next == nullptr && standing_by_ == 0) next = pollers_.pop();
    }
    if (next != nullptr && is_starving_) {
      is_starving_ = false;
      if (next->wants) want(-1);
      show_attention();
      return {next, Sign::given};
    }
    if (next != nullptr) ++awake_;
    state_.store(0, std::memory_order_release);  // release: all that we did, to who takes it
    return {next, Sign::look};
  }

  const Os os_;
  Atom<std::uint32_t>& wanted_;
  const std::uint32_t spins_;
  const Rest standby_;
  std::uint32_t waits_ = 0;  // calls that wait, and are not the one that has the baton; of who has it

  Atom<std::uint32_t> state_{taken};

  typename Os::Mutex mutex_;  // guards what follows, and is held for a few instructions, by who has waited, or lets
                              // others in
  bool is_closed_ = false;
  bool is_starving_ = false;  // the first in line_ has stood there for long
  std::uint32_t awake_ = 0;   // threads that look for the baton, and stand in no line
  std::int32_t standing_by_ = 0;
  typename Turn::Line line_;     // of those that want it
  typename Turn::Line pollers_;  // of those whose calls wait
};

}  // namespace aplib
