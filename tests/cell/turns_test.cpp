// SPDX-License-Identifier: MIT
// Turns under the deterministic scheduler: threads of a program that call, wait for each other's messages and for those
// of another processor, and yield. One at a time has the baton, no message is missed, and nobody waits for ever.
#include "cell/turns.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>

#include "cell/parker.hpp"
#include "checks.hpp"
#include "det/explore.hpp"
#include "parker_model.hpp"

namespace aplib {
namespace {

/// What a model leaves out.
enum class TurnsFault { none, no_poller_woken, no_wake };

using ParkerOfModel = Parker<det::DetAtomic, ParkerModel>;

struct TurnsModel {
  class Mutex {
   public:
    void lock() noexcept {
      while (word_.exchange(1, std::memory_order_acquire) == 1) det::futex_wait(word_, 1);
    }
    void unlock() noexcept {
      word_.store(0, std::memory_order_release);
      det::futex_wake(word_, 1);
    }

   private:
    det::DetAtomic<std::uint32_t> word_{0};
  };

  ParkerOfModel& parker;
  std::minstd_rand& chance;
  Clock::time_point& clock;
  TurnsFault fault;

  void wake_poller() const noexcept {
    if (fault != TurnsFault::no_poller_woken) parker.wake_if_asleep();
  }
  /// Now and then patience is at its end.
  [[nodiscard]] Clock::time_point now() const noexcept {
    return clock += std::chrono::microseconds(chance() % 4 == 0 ? 700 : 1);
  }
  void relax() const noexcept { det::yield(); }
  void wait(det::DetAtomic<std::uint32_t>& word, std::uint32_t expected,
            std::optional<std::chrono::nanoseconds> timeout) const noexcept {
    det::futex_wait(word, expected, timeout.value_or(std::chrono::nanoseconds::max()));
  }
  void wake(det::DetAtomic<std::uint32_t>& word) const noexcept {
    if (fault != TurnsFault::no_wake) det::futex_wake(word, 1);
  }
};

struct Shape {
  std::uint32_t spins = 0;
  bool stands_by_spinning = false;
  TurnsFault fault = TurnsFault::none;
};

// In each round, every thread of the program sends a message to the next, which is of the same cell, and awaits one
// from the last, and one from the other processor. Who has the baton does what a processor does (Baton::dispatch()).
struct TurnsScenario {
  static constexpr int callers = 3;
  static constexpr int thread_count = callers + 1;
  static constexpr std::uint32_t rounds = 3;

  using Subject = Turns<det::DetAtomic, TurnsModel>;
  using Turn = Subject::Turn;

  TurnsScenario(const Shape& shape, std::uint64_t seed)
      : chance(static_cast<std::uint32_t>(seed)),
        turns(TurnsModel{parker, chance, clock, shape.fault}, wanted, shape.spins,
              shape.stands_by_spinning ? Subject::Rest{.spins = 2, .sleep = std::chrono::nanoseconds(0)}
                                       : Subject::Rest{.spins = 0, .sleep = std::chrono::microseconds(50)}) {
    lay_down();  // whoever makes the baton has it
  }

  /// What who has the baton knows of a call.
  struct Call {
    Turn turn;
    std::uint32_t sent = 0;      // to it, from the same cell
    std::uint32_t received = 0;  // rounds
    bool waits = false;
    bool is_ready = false;
  };

  void thread(int me) {
    if (me == callers) return send_from_elsewhere();
    Call& call = calls.at(static_cast<std::size_t>(me));
    Call& next = calls.at(static_cast<std::size_t>((me + 1) % callers));
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      enter();
      ++next.sent;
      look_at(next);
      if (chance() % 4 == 0) {  // to yield
        make_ready(call);
        dispatch(call);
      }
      if (chance() % 2 == 0) {  // another call
        lay_down();
        enter();
      }
      if (!has_message(call)) {
        call.waits = true;
        dispatch(call);
      }
      det::check(has_message(call), "a wait ends with its message");
      ++call.received;
      lay_down();
    }
  }

  void send_from_elsewhere() {
    for (std::uint32_t round = 0; round < rounds; ++round) {
      for (auto& each : elsewhere) {
        each.fetch_add(1, std::memory_order_release);
        parker.wake_if_asleep();
      }
    }
  }

  [[nodiscard]] bool has_message(const Call& call) const {
    const auto me = static_cast<std::size_t>(&call - calls.data());
    return call.sent > call.received && elsewhere.at(me).load(std::memory_order_acquire) > call.received;
  }

  // ------------------------------------------------------------- of who has the baton

  void own() { owner.write(owner.read() + 1); }  // a race, where two have it

  void enter() {
    Turn turn;
    det::check(turns.take(turn), "it is open");
    own();
  }

  void lay_down() {
    own();
    Call* const ready = pop_ready();
    if (ready == nullptr && turns.try_lay_down()) return;
    turns.lay_down([this, next = ready]() mutable { return next_turn(next); });
  }

  void dispatch(Call& self) {
    const bool yields = self.is_ready;
    while (true) {
      own();
      Call* ready = pop_ready();
      if (ready == nullptr && !turns.is_wanted()) ready = await_ready();
      if (ready == &self && !has_ready() && !turns.is_wanted()) break;
      const bool runs = turns.pass_on(self.turn, yields, [this, next = ready]() mutable { return next_turn(next); });
      own();
      if (runs) break;
    }
  }

  Turn* next_turn(Call*& next) {
    if (next == nullptr) return nullptr;
    Turn* const turn = &next->turn;
    next = pop_ready();
    return turn;
  }

  void make_ready(Call& call) {
    call.waits = false;
    call.is_ready = true;
  }
  void look_at(Call& call) {
    if (call.waits && has_message(call)) make_ready(call);
  }
  [[nodiscard]] bool has_ready() const {
    for (const Call& each : calls) {
      if (each.is_ready) return true;
    }
    return false;
  }
  Call* pop_ready() {
    for (Call& each : calls) {
      if (!each.is_ready) continue;
      each.is_ready = false;
      return &each;
    }
    return nullptr;
  }
  Call* await_ready() {
    while (true) {
      for (Call& each : calls) look_at(each);
      if (has_ready() || turns.is_wanted()) return pop_ready();
      const auto look = [this] {
        for (Call& each : calls) look_at(each);
        return has_ready() || turns.is_wanted();
      };
      sleep_unless(parker, false, look, [this] { parker.sleep(std::nullopt); });
    }
  }

  std::minstd_rand chance;
  Clock::time_point clock{};
  ParkerModel parker_os;
  ParkerOfModel parker{parker_os};
  det::DetAtomic<std::uint32_t> wanted{0};
  std::array<Call, callers> calls;
  std::array<det::DetAtomic<std::uint32_t>, callers> elsewhere;  // messages from there
  det::DetPlain<int> owner{0};
  Subject turns;
};

det::Outcome take_turns(std::uint64_t seeds, det::Memory memory, const Shape& shape) {
  std::uint64_t seed = 0;
  // Standing by is a timed wait, which may run out. A lost wake-up shows as a deadlock.
  return det::explore_with(seeds, {.memory = memory, .timeouts_fail = false},
                           [shape, &seed] { return std::make_unique<TurnsScenario>(shape, ++seed); });
}

TEST(Turns, NobodyWaitsForEverUnderAnySeed) {
  const std::uint64_t seeds = testing_support::scaled(2000, 10, 1);
  for (const det::Memory memory : {det::Memory::interleaving, det::Memory::tso, det::Memory::weak}) {
    for (const Shape& shape : {Shape{}, Shape{.spins = 3, .stands_by_spinning = true}}) {
      const det::Outcome outcome = take_turns(seeds, memory, shape);
      EXPECT_TRUE(outcome.ok) << outcome.failure;
    }
  }
}

TEST(Turns, AreCaughtWithoutTheirWakeUps) {
  for (const TurnsFault fault : {TurnsFault::no_poller_woken, TurnsFault::no_wake}) {
    const det::Outcome outcome = take_turns(200, det::Memory::interleaving, {.fault = fault});
    EXPECT_NE(outcome.failure.find("lost wake-up"), std::string::npos) << outcome.failure;
  }
}

}  // namespace
}  // namespace aplib
