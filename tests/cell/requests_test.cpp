// SPDX-License-Identifier: MIT
// Requests of cells that move, under the deterministic scheduler. In every order of steps a message goes to the oldest
// request that accepts it. A request that names a cell which has ended is told so behind all that the cell has sent.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <span>

#include "det/explore.hpp"
#include "machines.hpp"
#include "moving_cells.hpp"

namespace aplib {
namespace {

struct Asked {
  Posted posted;
  std::uint32_t body = 0;
};

struct RequestProgram {
  static constexpr std::uint32_t types = 2;
  using Counts = std::array<std::array<std::uint32_t, types>, ThreeOnThree::cells>;

  TaskControl task;
  Counts sent{};
  Counts received{};        // by requests that have been looked at
  std::uint32_t count = 0;  // of all messages received
  std::deque<Asked> asked;  // in order of posting
};

// Receivers have requests open. The others send to all of them, in two types.
class RequestScenario : public MovingCells<RequestProgram> {
 public:
  RequestScenario() : MovingCells(6) {}

 private:
  static constexpr std::uint32_t senders = cells - processors;
  static constexpr std::uint32_t types = RequestProgram::types;
  static constexpr std::uint32_t messages = 2;  // of each sender and type to each receiver
  static constexpr std::size_t open_max = 4;

  void step(Processor& here) override {
    if (random(3) == 0) here.poll();
    if (here.residents().empty()) return;
    const std::uint32_t cell = here.residents()[random(static_cast<std::uint32_t>(here.residents().size()))];
    if (is_receiver(cell) && random(3) == 0) {
      move(here, cell);
    } else if (!domain.cells[cell]->ended) {
      is_receiver(cell) ? receive(here, cell) : send(here, cell);
    }
  }

  void send(Processor& here, std::uint32_t cell) {
    RequestProgram& program = programs[cell];
    for (std::uint32_t tries = 0, at = random(processors * types); tries < processors * types; ++tries) {
      const std::uint32_t to = (at + tries) / types % processors * cells_each;
      const std::uint32_t type = (at + tries) % types;
      std::uint32_t& sent = program.sent[to][type];
      if (sent == messages) continue;
      const std::uint32_t number = sent++;
      return send_as(here, program, to, std::as_bytes(std::span(&number, 1)),
                     {.type = static_cast<std::int32_t>(type)});
    }
    end(here, cell);
  }

  void receive(Processor& here, std::uint32_t cell) {
    RequestProgram& program = programs[cell];
    switch (random(4)) {
      case 0:
        look(program);
        if (program.count == senders * types * messages && program.asked.empty()) end(here, cell);
        break;
      case 1:
        if (!program.asked.empty() && program.asked.front().posted.open) {
          Inbound::cancel(program.asked.front().posted);
          program.asked.pop_front();
        }
        break;
      default:
        if (program.asked.size() < open_max) ask(here, program);
    }
  }

  void ask(Processor& here, RequestProgram& program) {
    Asked& asked = program.asked.emplace_back();
    std::uint32_t from = random(cells);
    while (is_receiver(from)) from = random(cells);
    asked.posted.wish = {MatchKey::make(0, from, 0, random(types)), MatchKey::space_mask};
    if (random(3) == 0) asked.posted.wish.mask |= MatchKey::type_mask;
    // Once all is here, only what names a cell can come to an end.
    if (random(2) == 0 || program.count + open_max >= senders * types * messages)
      asked.posted.wish.mask |= MatchKey::cell_mask;
    asked.posted.buffer = reinterpret_cast<char*>(&asked.body);
    asked.posted.capacity = sizeof asked.body;
    here.inbound().post(program.task, asked.posted);
  }

  /// Takes those that are over, the oldest first, so that numbers of one sender and type must come in order.
  static void look(RequestProgram& program) {
    while (!program.asked.empty() && !program.asked.front().posted.open) {
      const Asked& asked = program.asked.front();
      if (asked.posted.how == Wake::done) {
        const std::uint64_t key = asked.posted.key;
        det::check(asked.posted.wish.accepts(key), "a request gets what it asked for");
        std::uint32_t& received = program.received[MatchKey::cell(key)][MatchKey::type(key)];
        det::check(received++ == asked.body, "an older request has the earlier message");
        ++program.count;
      } else {
        const std::uint32_t from = MatchKey::cell(asked.posted.wish.key);
        for (std::uint32_t type = 0; type < types; ++type) {
          if (asked.posted.wish.accepts(MatchKey::make(0, from, 0, type)))
            det::check(program.received[from][type] == messages, "an end is told behind all that the cell has sent");
        }
      }
      program.asked.pop_front();
    }
  }
};

TEST(Requests, GetTheirMessagesInOrderWhereverTheirCellMovesUnderEverySeed) {
  const det::Outcome outcome =
      det::explore<RequestScenario>(testing_support::scaled(5'000, 10, 10), {.memory = det::Memory::interleaving});
  EXPECT_TRUE(outcome.ok) << outcome.failure;
}

}  // namespace
}  // namespace aplib
