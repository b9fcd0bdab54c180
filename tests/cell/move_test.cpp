// SPDX-License-Identifier: MIT
// Moving cells under the deterministic scheduler. In every order of events, messages to and from a cell that changes
// its processor arrive once, in order, and only where the cell is.
#include "cell/mover.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "cell/ring.hpp"
#include "det/explore.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

enum class MoveFault { none, order_ignored, fences_ignored, late_routes };

// Three processors with a cell on each at first. Every cell sends to every cell. Cell 0 moves from processor 0 to 1,
// then to 2.
struct MoveScenario {
  static constexpr int thread_count = 3;
  static constexpr std::uint32_t cells = 3;
  static constexpr std::uint32_t messages = 5;  // from each cell to each
  static constexpr std::uint32_t moves = 2;
  using MoveRing = Ring<det::DetAtomic, 4>;
  enum Kind : std::uint32_t { message, forwarded, cell_moved, fence };

  struct Item {
    std::uint32_t kind, sender, cell, number;
  };
  /// The data that moves with a cell. The scheduler reports if two processors use it without an order between them.
  struct CellState {
    det::DetPlain<std::uint32_t> sent[cells];
    det::DetPlain<std::uint32_t> received[cells];
  };
  struct Member {
    std::uint32_t route[cells] = {0, 1, 2};
    bool resident[cells] = {};
    MoveProtocol protocol;
    std::deque<Item> backlog[thread_count];
    std::deque<Item> kept;
  };

  explicit MoveScenario(MoveFault with) : fault(with) {
    for (std::uint32_t p = 0; p < thread_count; ++p) {
      members[p].resident[p] = true;
      members[p].protocol.prepare(p, thread_count);
    }
  }

  void push(std::uint32_t me, std::uint32_t to, const Item& item) {
    members[me].backlog[to].push_back(item);
    flush(me, to);
  }
  void flush(std::uint32_t me, std::uint32_t to) {
    std::deque<Item>& backlog = members[me].backlog[to];
    while (!backlog.empty()) {
      MoveRing::Entry* entry = rings[me][to].prepare();
      if (entry == nullptr) return;
      det::Scheduler::current()->plain_write(entry);
      entry->info = backlog.front().kind;
      entry->key = backlog.front().sender;
      entry->cell = backlog.front().cell;
      entry->task = backlog.front().number;
      rings[me][to].publish();
      backlog.pop_front();
    }
  }
  auto push_of(std::uint32_t me) {
    return [this, me](std::uint32_t to, MoveProtocol::Kind kind, std::uint32_t cell, std::uint32_t argument) {
      push(me, to, {kind == MoveProtocol::Kind::fence ? fence : cell_moved, 0, cell, argument});
    };
  }

  void deliver(std::uint32_t me, std::uint32_t cell, std::uint32_t sender, std::uint32_t number) {
    det::check(members[me].resident[cell], "a message is delivered where its cell is");
    det::check(states[cell].received[sender].read() == number, "messages of one sender arrive once and in order");
    states[cell].received[sender].write(number + 1);
    delivered.fetch_add(1, std::memory_order_relaxed);
  }

  void send(std::uint32_t me, std::uint32_t sender, std::uint32_t cell) {
    Member& here = members[me];
    const std::uint32_t number = states[sender].sent[cell].read();
    if (number == messages) return;
    states[sender].sent[cell].write(number + 1);
    const std::uint32_t to = here.route[cell];
    if (to != me) {
      push(me, to, {message, sender, cell, number});
    } else if (here.protocol.arriving() == cell) {
      here.kept.push_back({message, sender, cell, number});
    } else {
      deliver(me, cell, sender, number);
    }
  }

  // False: the message stays in its ring.
  bool handle(std::uint32_t me, std::uint32_t from, const Item& item) {
    Member& here = members[me];
    switch (item.kind) {
      case message:
      case forwarded: {
        const bool in_order = fault == MoveFault::order_ignored ||
                              MoveProtocol::in_order(from, here.route[item.sender], item.kind == forwarded);
        auto admission = here.protocol.admit(from, item.cell, here.route[item.cell], in_order);
        if (fault == MoveFault::fences_ignored && item.cell == here.protocol.arriving())
          admission = MoveProtocol::Admission::deliver;
        if (admission == MoveProtocol::Admission::hold) return false;
        if (admission == MoveProtocol::Admission::forward) {
          push(me, here.protocol.peer(), {forwarded, item.sender, item.cell, item.number});
        } else {
          deliver(me, item.cell, item.sender, item.number);
        }
        return true;
      }
      case cell_moved:
        here.route[item.cell] = item.number;
        if (item.number == me) here.resident[item.cell] = true;
        here.protocol.moved(from, item.cell, item.number, push_of(me));
        return true;
      default:
        if (!here.protocol.fence(item.number, push_of(me))) return true;
        here.protocol.arrived();
        for (const Item& kept : here.kept) deliver(me, kept.cell, kept.sender, kept.number);
        here.kept.clear();
        moved.fetch_add(1, std::memory_order_release);
        return true;
    }
  }

  bool poll(std::uint32_t me) {
    bool took = false;
    for (std::uint32_t from = 0; from < thread_count; ++from) {
      if (from == me) continue;
      if (MoveRing::Entry* entry = rings[from][me].peek()) {
        det::Scheduler::current()->plain_read(entry);
        const Item item{entry->info, static_cast<std::uint32_t>(entry->key), entry->cell, entry->task};
        if (handle(me, from, item)) {
          rings[from][me].pop();
          took = true;
        }
      }
      rings[from][me].settle();
      flush(me, from);
    }
    return took;
  }

  void maybe_move(std::uint32_t me) {
    Member& here = members[me];
    if (me >= moves || !here.resident[0] || here.protocol.active()) return;
    if (moved.load(std::memory_order_acquire) != me) return;  // the last move is not complete everywhere
    if (det::Scheduler::current()->random(4) != 0) return;
    const std::uint32_t to = me + 1;
    here.resident[0] = false;
    if (fault == MoveFault::late_routes) {
      here.protocol.leave(0, to, push_of(me));
      send_all(me);
      here.route[0] = to;
    } else {
      here.route[0] = to;
      here.protocol.leave(0, to, push_of(me));
    }
  }

  void send_all(std::uint32_t me) {
    for (std::uint32_t sender = 0; sender < cells; ++sender) {
      if (!members[me].resident[sender]) continue;
      for (std::uint32_t cell = 0; cell < cells; ++cell) {
        if (det::Scheduler::current()->random(3) == 0) send(me, sender, cell);
      }
    }
  }

  void thread(int number) {
    const auto me = static_cast<std::uint32_t>(number);
    while (delivered.load(std::memory_order_relaxed) != cells * cells * messages ||
           moved.load(std::memory_order_acquire) != moves) {
      maybe_move(me);
      send_all(me);
      if (!poll(me)) det::yield();
    }
  }

  MoveFault fault;
  CellState states[cells];
  Member members[thread_count];
  MoveRing rings[thread_count][thread_count];
  det::DetAtomic<std::uint32_t> delivered{0};
  det::DetAtomic<std::uint32_t> moved{0};
};

det::Outcome move_cells(std::uint64_t seeds, det::Memory memory, MoveFault fault = MoveFault::none) {
  return det::explore_with(seeds, {.memory = memory}, [=] { return std::make_unique<MoveScenario>(fault); });
}

TEST(Move, KeepsMessagesWholeAndInOrderUnderEverySeed) {
  for (const det::Memory memory : {det::Memory::interleaving, det::Memory::weak}) {
    const det::Outcome outcome = move_cells(testing_support::scaled(10'000, 10, 10), memory);
    EXPECT_TRUE(outcome.ok) << outcome.failure;
  }
}

// The scenario finds the errors that it is meant to find.
TEST(Move, WithoutAnyOneOfItsRulesFails) {
  for (const MoveFault fault : {MoveFault::order_ignored, MoveFault::fences_ignored, MoveFault::late_routes})
    EXPECT_FALSE(move_cells(2'000, det::Memory::interleaving, fault).ok) << static_cast<int>(fault);
}

}  // namespace
}  // namespace aplib
