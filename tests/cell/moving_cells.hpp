// SPDX-License-Identifier: MIT
// Cells that send, receive, move and end, under the deterministic scheduler. Processors are real and have no threads:
// each turn of a scheduled thread is a step of one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "det/explore.hpp"

namespace aplib {

/// Cells on three processors.
template <std::uint32_t each>
struct OnThree {
  static constexpr int thread_count = 3;
  static constexpr std::uint32_t processors = 3;
  static constexpr std::uint32_t cells_each = each;
  static constexpr std::uint32_t cells = processors * cells_each;
};

/// Of three cells on each processor, the first one receives and moves. The others send, and end.
using ThreeOnThree = OnThree<3>;

/// `Program` is a cell's `task`, and how far it is. Only the processor that carries the cell uses it.
template <class Program, class Shape = ThreeOnThree>
class MovingCells : public Shape {
 public:
  using Shape::cells;
  using Shape::cells_each;
  using Shape::processors;

  explicit MovingCells(std::uint32_t moves) : moves_left_(moves) {
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
  MovingCells(const MovingCells&) = delete;
  MovingCells& operator=(const MovingCells&) = delete;
  virtual ~MovingCells() {
    for (Cell* const cell : domain.cells) cell->tasks.erase(0);  // it is ours
  }

  void thread(int me) {
    while (ended_ != cells) {
      step(*domain.processors[static_cast<std::size_t>(me)]);
      det::yield();
    }
  }

  std::array<Program, cells> programs;  // Before the domain: they outlive their cells.
  Domain domain;

 protected:
  static bool is_receiver(std::uint32_t cell) { return cell % cells_each == 0; }
  static std::uint32_t random(std::uint32_t below) {
    return static_cast<std::uint32_t>(det::Scheduler::current()->random(below));
  }

  /// What the processor does in one turn.
  virtual void step(Processor& here) = 0;

  void move(Processor& here, std::uint32_t cell) {
    if (moves_left_ == 0 || here.mover().active() || domain.cells[cell]->ended) return;
    if (here.mover().hand_over(*domain.cells[cell], (here.index() + 1 + random(processors - 1)) % processors))
      --moves_left_;
  }

  /// As the program's task would.
  void send_as(Processor& here, Program& program, std::uint32_t to, std::span<const std::byte> bytes,
               const To& task = {}) {
    here.take_over(program.task);
    here.send(program.task, "send", to, bytes, task, 0);
    detail::current_processor = nullptr;
  }

  void end(Processor& here, std::uint32_t cell) {
    ++domain.cells[cell]->ended_from_kernel;
    here.end_cell(*domain.cells[cell]);
    ++ended_;
  }

 private:
  std::uint32_t moves_left_;
  std::uint32_t ended_ = 0;
};

}  // namespace aplib
