// SPDX-License-Identifier: MIT
// Ends of cells while others move, under the deterministic scheduler. In every order of steps a receive that names a
// cell gets all that the cell has sent to it, though the cell has ended meanwhile, and is told of the end only then.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>

#include "cell/collectives.hpp"
#include "det/explore.hpp"
#include "machines.hpp"
#include "moving_cells.hpp"

namespace aplib {
namespace {

struct EndProgram {
  TaskControl task;
  std::array<std::uint32_t, ThreeOnThree::cells> sent{};
  std::array<std::uint32_t, ThreeOnThree::cells> received{};
  std::uint32_t body = 0;    // that came last
  std::uint32_t from = 0;    // whose message it waits for
  bool told_of_end = false;  // of the last sender
};

// Receivers take what all others send to them. So there are always ends while a receiver arrives somewhere and messages
// to it are under way.
class EndScenario : public MovingCells<EndProgram> {
 public:
  EndScenario() : MovingCells(8) {
    for (EndProgram& program : programs) program.task.posted.task = &program.task;
  }

 private:
  static constexpr std::uint32_t messages = 2;  // of each sender to each receiver

  void step(Processor& here) override {
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

  void send(Processor& here, std::uint32_t cell) {
    EndProgram& program = programs[cell];
    std::uint32_t to = random(processors) * cells_each;
    for (std::uint32_t tries = 0; tries < processors && program.sent[to] == messages; ++tries)
      to = (to + cells_each) % cells;
    if (program.sent[to] == messages) return end(here, cell);
    const std::uint32_t number = program.sent[to]++;
    send_as(here, program, to, std::as_bytes(std::span(&number, 1)));
  }

  /// As Inbound::receive(), but a step that must wait returns.
  void receive(Processor& here, std::uint32_t cell) {
    EndProgram& program = programs[cell];
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
    EndProgram& program = programs[task.cell->id];
    if (task.wake != Wake::ended) return take(program);
    det::check(program.received[program.from] == messages, "an end is told behind all that the cell has sent");
    program.told_of_end = true;
  }

  void take(EndProgram& program) {
    det::check(program.received[program.from]++ == program.body, "messages of one sender arrive once and in order");
  }
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
