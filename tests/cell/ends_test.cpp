// SPDX-License-Identifier: MIT
// Ends of cells while others move, under the deterministic scheduler. Processors are real and have no threads: each
// turn of a scheduled thread is a step of one. In every order of steps a receive that names a cell gets all that the
// cell has sent to it, though the cell has ended meanwhile, and is told of the end only then.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "cell/collectives.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "det/explore.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

// Of three cells on each of three processors, the first one receives what all others send to it, and moves. The others
// send and end. So there are always ends while a receiver arrives somewhere and messages to it are under way.
struct EndScenario {
  static constexpr int thread_count = 3;
  static constexpr std::uint32_t processors = 3;
  static constexpr std::uint32_t cells_each = 3;
  static constexpr std::uint32_t cells = processors * cells_each;
  static constexpr std::uint32_t messages = 2;  // of each sender to each receiver
  static constexpr std::uint32_t moves_max = 8;

  /// A cell's task and how far it is. Only the processor that carries the cell uses it.
  struct Program {
    TaskControl task;
    std::array<std::uint32_t, cells> sent{};
    std::array<std::uint32_t, cells> received{};
    std::uint32_t body = 0;    // that came last
    std::uint32_t from = 0;    // whose message it waits for
    bool told_of_end = false;  // of the last sender
  };

  EndScenario() {
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
      programs[c].task.posted.task = &programs[c].task;
    }
    for (const auto& processor : domain.processors) processor->prepare();
  }
  ~EndScenario() {
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
    if (!here.residents().empty()) {
      const std::uint32_t cell = here.residents()[random(static_cast<std::uint32_t>(here.residents().size()))];
      if (is_receiver(cell) && random(3) == 0) {
        move(here, cell);
      } else if (!domain.cells[cell]->ended && programs[cell].task.waits == WaitFor::nothing) {
        is_receiver(cell) ? receive(here, cell) : send(here, cell);
      }
    }
    while (TaskControl* const task = here.idle().pop_ready()) go_on(*task);
  }

  void move(Processor& here, std::uint32_t cell) {
    if (moves == moves_max || here.mover().active() || domain.cells[cell]->ended) return;
    if (here.mover().hand_over(*domain.cells[cell], (here.index() + 1 + random(processors - 1)) % processors)) ++moves;
  }

  void send(Processor& here, std::uint32_t cell) {
    Program& program = programs[cell];
    std::uint32_t to = random(processors) * cells_each;
    for (std::uint32_t tries = 0; tries < processors && program.sent[to] == messages; ++tries)
      to = (to + cells_each) % cells;
    if (program.sent[to] == messages) return end(here, cell);
    const std::uint32_t number = program.sent[to]++;
    here.send(program.task, "send", to, std::as_bytes(std::span(&number, 1)), {}, 0);
  }

  /// As Inbound::receive(), but a step that must wait returns.
  void receive(Processor& here, std::uint32_t cell) {
    Program& program = programs[cell];
    if (is_receiver(program.from) || program.received[program.from] == messages) {
      std::uint32_t from = random(cells);
      for (std::uint32_t tries = 0; tries < cells && (is_receiver(from) || program.received[from] == messages); ++tries)
        from = (from + 1) % cells;
      if (is_receiver(from) || program.received[from] == messages) {
        if (program.told_of_end) return end(here, cell);
        from = cells - 1;  // once more: there is nothing left
      }
      program.from = from;
    }
    Posted& posted = program.task.posted;
    posted.wish = {MatchKey::make(0, program.from, 0, 0), MatchKey::cell_mask};
    posted.buffer = reinterpret_cast<char*>(&program.body);
    posted.capacity = sizeof program.body;
    program.task.wake = Wake::done;
    if (Inbound::has(program.task, posted.wish)) {
      det::check(here.inbound().receive(program.task, "receive", false) == Wake::done, "it was there");
      return take(program);
    }
    posted.open = true;
    here.poll();
    if (!posted.open) return take(program);
    program.task.waits = WaitFor::message;
    if (here.inbound().some_cell_ended() && here.inbound().is_in_vain(*program.task.cell, posted.wish))
      here.inbound().wake_waiting(program.task, Wake::ended);
  }

  void go_on(TaskControl& task) {
    task.ready = false;
    task.waits = WaitFor::nothing;
    Program& program = programs[task.cell->id];
    if (task.wake != Wake::ended) return take(program);
    det::check(program.received[program.from] == messages, "an end is told behind all that the cell has sent");
    program.told_of_end = true;
  }

  void take(Program& program) {
    det::check(program.received[program.from]++ == program.body, "messages of one sender arrive once and in order");
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

// A cell of another process ends whenever it has no task, and two of its ends may come by different ways.
TEST(Ends, AnOlderOneThatComesLaterChangesNothing) {
  EndScenario scenario;
  Inbound& inbound = scenario.domain.processors[0]->inbound();
  constexpr std::uint32_t cell = EndScenario::cells - 1;
  CellEnd end;
  for (const std::uint64_t tasks : {2, 1}) {
    end.tasks = tasks;
    inbound.cell_ended(cell, end);
  }
  EXPECT_EQ(inbound.end_of(cell).tasks, 2U);
}

TEST(Ends, AreToldBehindAllMessagesWhereverTheReceiverMovesUnderEverySeed) {
  const det::Outcome outcome =
      det::explore<EndScenario>(testing_support::scaled(10'000, 10, 10), {.memory = det::Memory::interleaving});
  EXPECT_TRUE(outcome.ok) << outcome.failure;
}

}  // namespace
}  // namespace aplib
