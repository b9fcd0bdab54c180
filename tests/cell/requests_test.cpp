// SPDX-License-Identifier: MIT
// Requests of cells that move, under the deterministic scheduler. Processors are real and have no threads: each turn of
// a scheduled thread is a step of one. In every order of steps a message goes to the oldest request that accepts it,
// and a request that names a cell which has ended is told so behind all that the cell has sent.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "det/explore.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

// Of three cells on each of three processors, the first one has requests open, and moves. The others send to all such
// cells, in two types, and end.
struct RequestScenario {
  static constexpr int thread_count = 3;
  static constexpr std::uint32_t processors = 3;
  static constexpr std::uint32_t cells_each = 3;
  static constexpr std::uint32_t cells = processors * cells_each;
  static constexpr std::uint32_t senders = cells - processors;
  static constexpr std::uint32_t types = 2;
  static constexpr std::uint32_t messages = 2;  // of each sender and type to each receiver
  static constexpr std::uint32_t moves_max = 6;
  static constexpr std::size_t open_max = 4;

  struct Asked {
    Posted posted;
    std::uint32_t body = 0;
  };
  /// A cell's task and how far it is. Only the processor that carries the cell uses it.
  struct Program {
    TaskControl task;
    std::array<std::array<std::uint32_t, types>, cells> sent{};
    std::array<std::array<std::uint32_t, types>, cells> received{};  // by requests that have been looked at
    std::uint32_t count = 0;                                         // of all messages received
    std::deque<Asked> asked;                                         // in order of posting
  };

  RequestScenario() {
    domain.options.cells = {cells, 1};
    domain.build_cells({cells, 1});
    domain.carriers = processors;
    domain.arrivals = std::make_unique<ArrivalLines[]>(processors);
    domain.programs_started = 1;
    domain.live_cells = cells;
    for (std::uint32_t p = 0; p < processors; ++p)
      domain.processors.push_back(std::make_unique<Processor>(domain, p, ProcessorRole::carrier));
    for (std::uint32_t c = 0; c < cells; ++c) {
      Cell& cell = *domain.cells[c];
      cell.processor = domain.processors[c / cells_each].get();
      cell.tasks.make_room(0);
      cell.tasks.insert(0, programs[c].task);
      cell.live_tasks = 1;
      programs[c].task.cell = &cell;
    }
    for (const auto& processor : domain.processors) processor->prepare();
  }
  ~RequestScenario() {
    for (Cell* const cell : domain.cells) cell->tasks.erase(0);  // it is ours
  }

  static bool is_receiver(std::uint32_t cell) { return cell % cells_each == 0; }
  static std::uint32_t random(std::uint32_t below) {
    return static_cast<std::uint32_t>(det::Scheduler::current()->random(below));
  }

  void thread(int me) {
    while (ended != cells) {
      step(*domain.processors[static_cast<std::size_t>(me)]);
      det::yield();
    }
  }

  void step(Processor& here) {
    if (random(3) == 0) here.poll();
    if (here.residents().empty()) return;
    const std::uint32_t cell = here.residents()[random(static_cast<std::uint32_t>(here.residents().size()))];
    if (is_receiver(cell) && random(3) == 0) {
      move(here, cell);
    } else if (!domain.cells[cell]->ended) {
      is_receiver(cell) ? receive(here, cell) : send(here, cell);
    }
  }

  void move(Processor& here, std::uint32_t cell) {
    if (moves == moves_max || here.mover().active() || domain.cells[cell]->ended) return;
    if (here.mover().hand_over(*domain.cells[cell], (here.index() + 1 + random(processors - 1)) % processors)) ++moves;
  }

  void send(Processor& here, std::uint32_t cell) {
    Program& program = programs[cell];
    for (std::uint32_t tries = 0, at = random(processors * types); tries < processors * types; ++tries) {
      const std::uint32_t to = (at + tries) / types % processors * cells_each;
      const std::uint32_t type = (at + tries) % types;
      std::uint32_t& sent = program.sent[to][type];
      if (sent == messages) continue;
      const std::uint32_t number = sent++;
      return here.send(program.task, "send", to, std::as_bytes(std::span(&number, 1)),
                       {.type = static_cast<std::int32_t>(type)}, 0);
    }
    end(here, cell);
  }

  void receive(Processor& here, std::uint32_t cell) {
    Program& program = programs[cell];
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

  void ask(Processor& here, Program& program) {
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
  static void look(Program& program) {
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

  void end(Processor& here, std::uint32_t cell) {
    ++domain.cells[cell]->ended_from_kernel;
    here.end_cell(*domain.cells[cell]);
    ++ended;
  }

  std::array<Program, cells> programs;  // Before the domain: they outlive their cells.
  Domain domain;
  std::uint32_t moves = 0;
  std::uint32_t ended = 0;
};

TEST(Requests, GetTheirMessagesInOrderWhereverTheirCellMovesUnderEverySeed) {
  const det::Outcome outcome =
      det::explore<RequestScenario>(testing_support::scaled(5'000, 10, 10), {.memory = det::Memory::interleaving});
  EXPECT_TRUE(outcome.ok) << outcome.failure;
}

}  // namespace
}  // namespace aplib
