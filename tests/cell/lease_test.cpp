// SPDX-License-Identifier: MIT
// Messages that are copied from the memory of their sender, under the deterministic scheduler: they come in order and
// whole, wherever the cells of sender and receiver move, and nobody reads memory that its sender has back.
#include "cell/lease.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>

#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "det/explore.hpp"
#include "machines.hpp"
#include "moving_cells.hpp"

namespace aplib {
namespace {

// A receiver takes what its sender takes back at the same time.
struct TakeBackScenario {
  static constexpr int thread_count = 2;
  static constexpr std::size_t bytes = 2 * Transfer<>::chunk_bytes_min + 100;

  void thread(int self) {
    if (self == 0) {
      send();
    } else {
      receive();
    }
  }

  void send() {
    std::memset(from, 7, bytes);
    offered.store(1, std::memory_order_release);
    for (std::uint64_t turns = det::Scheduler::current()->random(20); turns > 0; --turns) det::yield();
    if (state.hold()) {
      std::memcpy(aside, from, bytes);
      state.put_aside();
    } else {
      transfer.copy_from_back();
    }
    std::memset(from, 0, bytes);  // it is the sender's own again
  }

  void receive() {
    while (offered.load(std::memory_order_acquire) == 0) det::yield();
    transfer.begin(to, from, bytes);
    if (state.take()) {
      transfer.copy_from_front();
    } else {
      std::memcpy(to, aside, bytes);
    }
    bool whole = true;
    for (std::size_t b = 0; b < bytes; b += 64) whole = whole && to[b] == 7;
    det::check(whole && to[bytes - 1] == 7, "the message is whole");
  }

  LeaseState<det::DetAtomic> state;
  Transfer<det::DetAtomic> transfer;
  det::DetAtomic<int> offered{0};
  char from[bytes];
  char to[bytes];
  char aside[bytes];
};

TEST(Leases, AreTakenOrTakenBackUnderEverySeed) {
  for (const det::Memory memory : {det::Memory::interleaving, det::Memory::weak}) {
    const det::Outcome outcome = det::explore<TakeBackScenario>(400, {.memory = memory});
    EXPECT_TRUE(outcome.ok) << outcome.failure;
  }
}

// Two cells on each processor, all of which move. Each sends to all, itself too, some messages lent and some copied.
using TwoOnThree = OnThree<2>;

struct LeaseProgram {
  static constexpr std::size_t numbers = 30;  // in a message
  using Body = std::array<std::uint32_t, numbers>;
  struct Sent {
    Posted posted;
    Body body;
  };
  struct Asked {
    Posted posted;
    Body body{};
    Message message;  // which it comes to instead, perhaps
  };

  TaskControl task;
  std::array<std::uint32_t, TwoOnThree::cells> sent{};
  std::array<std::uint32_t, TwoOnThree::cells> received{};
  std::uint32_t count = 0;  // of all messages received
  std::deque<Sent> lent;
  std::deque<Asked> asked;  // in order of posting
};

class LeaseScenario : public MovingCells<LeaseProgram, TwoOnThree> {
 public:
  LeaseScenario() : MovingCells(8) {}

 private:
  static constexpr std::uint32_t messages = 4;  // of each cell to each
  static constexpr std::size_t open_max = 3;
  static constexpr std::size_t numbers = LeaseProgram::numbers;
  using Body = LeaseProgram::Body;
  using Sent = LeaseProgram::Sent;
  using Asked = LeaseProgram::Asked;

  void step(Processor& here) override {
    if (random(3) == 0) here.poll();
    if (here.residents().empty()) return;
    const std::uint32_t cell = here.residents()[random(static_cast<std::uint32_t>(here.residents().size()))];
    LeaseProgram& program = programs[cell];
    if (domain.cells[cell]->ended) return;
    reuse(program);
    switch (random(6)) {
      case 0:
        return move(here, cell);
      case 1:
      case 2:
        return send(here, cell);
      case 3:
        if (!program.lent.empty() && random(4) == 0) here.inbound().take_back(program.lent.back().posted);
        return reuse(program);
      default:
        return receive(here, cell);
    }
  }

  /// What is over is the sender's own, who writes something else there.
  static void reuse(LeaseProgram& program) {
    while (!program.lent.empty() && !program.lent.back().posted.open) {
      program.lent.back().body.fill(~0U);
      program.lent.pop_back();
    }
    for (Sent& sent : program.lent) {
      if (!sent.posted.open) sent.body.fill(~0U);
    }
  }

  void send(Processor& here, std::uint32_t cell) {
    LeaseProgram& program = programs[cell];
    for (std::uint32_t tries = 0, at = random(cells); tries < cells; ++tries) {
      const std::uint32_t to = (at + tries) % cells;
      if (program.sent[to] == messages) continue;
      Sent& sent = program.lent.emplace_front();
      sent.body.fill(program.sent[to]++);
      const std::uint64_t key = MatchKey::make(0, cell, 0, 0);
      auto* const bytes = reinterpret_cast<char*>(sent.body.data());
      if (random(3) != 0 && here.inbound().lend(program.task, to, 0, key, {bytes}, sizeof(Body), sent.posted)) return;
      send_as(here, program, to, std::as_bytes(std::span(sent.body)));
      return;
    }
  }

  void receive(Processor& here, std::uint32_t cell) {
    LeaseProgram& program = programs[cell];
    while (!program.asked.empty() && !program.asked.front().posted.open) {
      const Asked& asked = program.asked.front();
      det::check(asked.posted.how == Wake::done && asked.posted.bytes == sizeof(Body), "a request gets a message");
      Body body = asked.body;
      if (asked.posted.message != nullptr) std::memcpy(body.data(), asked.message.data(), sizeof body);
      const std::uint32_t number = program.received[MatchKey::cell(asked.posted.key)]++;
      const std::size_t whole = asked.posted.message != nullptr ? numbers : asked.posted.capacity / sizeof number;
      for (std::size_t i = 0; i < numbers; ++i)
        det::check(body[i] == (i < whole ? number : 0), "messages of a cell come whole, and in order");
      ++program.count;
      program.asked.pop_front();
    }
    const bool is_through = program.count == cells * messages && program.asked.empty();
    std::uint32_t sent = 0;
    for (const std::uint32_t each : program.sent) sent += each;
    if (is_through && sent == cells * messages && program.lent.empty()) return end(here, cell);
    if (!program.asked.empty() && random(4) == 0) {
      if (!program.asked.back().posted.open) return;
      Inbound::cancel(program.asked.back().posted);
      program.asked.pop_back();
    } else if (program.count + program.asked.size() < cells * messages && program.asked.size() < open_max) {
      Asked& asked = program.asked.emplace_back();
      asked.posted.wish = {0, MatchKey::space_mask};
      if (random(3) == 0) {
        asked.posted.message = &asked.message;
      } else {
        asked.posted.buffer = reinterpret_cast<char*>(asked.body.data());
        asked.posted.capacity = random(3) == 0 ? sizeof(Body) / 2 : sizeof(Body);
      }
      here.inbound().post(program.task, asked.posted);
    }
  }
};

TEST(Leases, ComeInOrderAndWholeWhereverTheirCellsMoveUnderEverySeed) {
  const det::Outcome outcome =
      det::explore<LeaseScenario>(testing_support::scaled(5'000, 10, 10), {.memory = det::Memory::interleaving});
  EXPECT_TRUE(outcome.ok) << outcome.failure;
}

}  // namespace
}  // namespace aplib
