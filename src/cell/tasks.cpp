// SPDX-License-Identifier: MIT
// The life of a task: made on its own stack, run, ended, joined.
#include <fmt/format.h>

#include <optional>

#include "aplib/error.hpp"
#include "cell/network.hpp"
#include "cell/processor.hpp"

namespace aplib {

namespace {

constexpr std::size_t host_stack_bytes_min = std::size_t{8}
                                             << 20;  // host programs were written for a process's main stack

char* align_down(char* address, std::size_t alignment) noexcept {
  return address - reinterpret_cast<std::uintptr_t>(address) % alignment;
}

std::string name_of(const Domain& domain, const TaskControl& task) {
  return fmt::format("{} task {}", domain.name_of(task.cell->id), task.id);
}

}  // namespace

void enter_program(TaskControl& self, ProgramContext* program) noexcept {
  self.program = program;
  current_program_context = program;
}

namespace {

/// Runs `part` of a task's life; what it throws ends the task, or the machine. Works without memory.
template <class Part>
void guarded(TaskControl& self, Domain& domain, Part part) noexcept {
  try {
    part();
  } catch (const TaskExit& exit) {
    if (exit.status != 0 && self.cell->status == 0) self.cell->status = exit.status;
  } catch (const Stopped&) {
    // the machine stops; whoever stopped it has said why
  } catch (...) {
    self.cell->status = static_cast<int>(ExitStatus::program_failed);
    char name[64];
    *fmt::format_to_n(name, sizeof name - 1, "{} task {}", domain.name_of(self.cell->id), self.id).out = '\0';
    domain.fail_by_exception(name);
  }
}

}  // namespace

// Runs on the new task's stack.
void task_body(Flow& flow) {
  auto& self = static_cast<TaskControl&>(flow);
  self.cell->processor->landed();
  Domain& domain = self.cell->processor->domain_;
  if (!domain.stopping.load(std::memory_order_relaxed)) {  // relaxed: noticed sooner or later
    guarded(self, domain, [&self] {
      if (self.program == nullptr) {
        self.entry(self.entry_state);
      } else {
        self.program->ops->run(*self.program, self.entry, self.entry_state);
      }
    });
  }
  if (self.program != nullptr) {
    guarded(self, domain, [&self] { self.program->ops->release(self.program); });
    enter_program(self, nullptr);
  }
  self.cell->processor->end_task(self);
}

TaskControl& Processor::spawn(Cell& cell, std::uint32_t id, const NewTask& what) {
  const bool runs_program = what.program_stack_bytes != 0;
  std::optional<StackPool>& stacks = runs_program ? cell.program_stacks : cell.stacks;
  if (!stacks && runs_program) {
    stacks.emplace((what.program_stack_bytes + 4095) & ~std::size_t{4095}, SlotPlan::program_stacks_of(cell.id),
                   SlotPlan::program_stacks_bytes);
  } else if (!stacks) {
    const bool on_host = &cell == domain_.host_cell.get();
    const std::size_t bytes =
        on_host ? std::max(domain_.options.stack_bytes, host_stack_bytes_min) : domain_.options.stack_bytes;
    stacks.emplace((bytes + 4095) & ~std::size_t{4095}, on_host ? nullptr : SlotPlan::stacks_of(cell.id),
                   SlotPlan::stacks_bytes());
  }
  cell.tasks.make_room(id);
  const Stack stack = stacks->get();
  const std::size_t colour = stack_colour(stack.bytes(), cell.id, id);
  char* const place = align_down(stack.top - colour - sizeof(TaskControl), alignof(TaskControl));
  char* const state_place = align_down(place - what.state_bytes, std::max<std::size_t>(what.state_alignment, 64));
  auto* task = ::new (place) TaskControl;
  task->cell = &cell;
  task->id = id;
  task->stack = stack;
  task->detached = what.detached;
  task->from_kernel = what.from_kernel;
  task->entry = what.entry;
  task->entry_state = state_place;
  try {
    if (what.parent != nullptr) task->program = what.parent->ops->inherit(*what.parent);
    what.move(state_place, what.state);
  } catch (...) {
    if (task->program != nullptr) task->program->ops->discard(task->program);
    task->~TaskControl();
    stacks->put(stack);
    cell.tasks.give_back(id);
    throw;
  }
  // From here on nothing throws, so nobody ever sees half a task.
  prepare_flow(*task, task_body, state_place, static_cast<std::size_t>(state_place - stack.low));
  cell.tasks.insert(id, *task);
  ++cell.live_tasks;
  if (!cell.orphans.empty()) {  // messages that were here before the task
    for (Buffer* buffer = cell.orphans.oldest(); buffer != nullptr;) {
      Buffer* next = buffer->next;
      if (buffer->task == id) {
        cell.orphans.remove(*buffer);
        task->mailbox.push(*buffer);
      }
      buffer = next;
    }
  }
  make_ready(*task);
  return *task;
}

void Processor::start_program(Cell& cell, const Program& program) {
  const Program* pointer = &program;
  const bool was_live = cell.live_tasks != 0;
  const TaskControl* started = nullptr;
  std::string problem;
  if (cell.tasks.find(program.task) != nullptr) {
    problem = "there is one already; choose another task id";
  } else {
    try {
      started =
          &spawn(cell, program.task,
                 {.entry = [](void* state) { (*static_cast<const Program**>(state))->body(); },
                  .state = &pointer,
                  .state_bytes = sizeof pointer,
                  .state_alignment = alignof(const Program*),
                  .move = [](void* to,
                             void* from) { *static_cast<const Program**>(to) = *static_cast<const Program**>(from); },
                  .program_stack_bytes = program.stack_bytes,
                  .detached = true,
                  .from_kernel = true});
    } catch (const Error& error) {  // no stack
      problem = error.what();
    }
  }
  if (started == nullptr || was_live) drop_live_cell();  // whoever asked for the start has counted this cell once more
  if (started == nullptr) {
    domain_.fail(static_cast<int>(ExitStatus::program_failed),
                 fmt::format("{}: cannot start a task {}: {}", domain_.name_of(cell.id), program.task, problem));
    return;
  }
  cell.ended = false;
}

// Runs on the ending task's stack and leaves it for good.
void Processor::end_task(TaskControl& self) {
  Cell& cell = *self.cell;
  self.ended = true;
  if (self.stack.guard == StackGuard::canary) domain_.guarded([&] { check_canary(self); });
  if (self.from_kernel) ++cell.ended_from_kernel;
  if (self.joiner != nullptr) {
    self.detached = true;  // the joiner needs nothing but to know
    if (self.joiner->waits == WaitFor::task_end && !self.joiner->ready) make_ready(*self.joiner);
  }
  if (--cell.live_tasks == 0) domain_.guarded([&] { end_cell(cell); });
  dying_ = &self;
  TaskControl* next = ready_.pop();
  if (next != nullptr) {
    switch_to_task(self, *next, true);
  } else {
    running_ = nullptr;
    switch_to(thread_, self, base_, true);
  }
  __builtin_unreachable();
}

void Processor::bury(TaskControl& task) noexcept {
  Cell& cell = *task.cell;
  cell.tasks.erase(task.id);
  while (Buffer* buffer = task.mailbox.oldest()) {  // nobody will ask for these any more
    task.mailbox.remove(*buffer);
    count_unread(*buffer, false);
    pool_->put(buffer);
  }
  dispose_flow(task);
  const Stack stack = task.stack;
  task.~TaskControl();
  if (cell.is_program_stack(stack)) {
    cell.program_stacks->put(stack);
  } else {
    cell.stacks->put(stack);
  }
}

void Processor::end_cell(Cell& cell) {
  cell.ended = true;
  struct Drop {  // whatever happens: else the machine would wait for this cell for ever
    Processor& processor;
    ~Drop() { processor.drop_live_cell(); }
  } const drop{*this};
  for (std::uint32_t p = 0; p < domain_.processors.size(); ++p) {
    if (p != index_) {
      push(p, SlotKind::cell_ended, cell.id, 0, MatchKey::make(0, cell.id, 0, 0), cell.end());
    }
  }
  if (arriving_ != nullptr) {
    ended_meanwhile_.push_back(cell.id);  // what it sent to the arriving cell waits too: end_move() keeps the order
  } else {
    cell_ended(cell.id, cell.end());
  }
}

void Processor::drop_live_cell() noexcept {
  if (domain_.live_cells.fetch_sub(1, std::memory_order_acq_rel) == 1) {  // acq_rel: the last one has seen what all did
    if (network_ != nullptr) {
      // Other processes' cells may still run: the end is for the overseer to tell, unless all stop anyway; see Domain::stop().
      std::atomic_thread_fence(std::memory_order_seq_cst);      // own store of the count before the load of stopping
      if (!domain_.stopping.load(std::memory_order_acquire)) {  // acquire: pairs with stop()
        network_->all_ended();
        return;
      }
    }
    domain_.over.store(true, std::memory_order_release);  // release: to idle()
    domain_.wake_all();
  }
}

void Processor::check_canary(const TaskControl& task) {
  std::uint64_t found = 0;
  std::memcpy(&found, task.stack.low, sizeof found);
  if (found == stack_canary) return;
  domain_.fail(static_cast<int>(ExitStatus::stack_overflow),
               fmt::format("{}: stack overflow: it used more than its {} KiB; raise {}", name_of(domain_, task),
                           task.stack.bytes() / 1024,
                           task.cell->is_program_stack(task.stack) ? "program-stack (APLIB_PROGRAM_STACK)"
                                                                   : "stack-size (APLIB_STACK_SIZE)"));
}

void Processor::join(TaskControl& self, std::uint32_t id) {
  Processor& here = *self.cell->processor;
  const auto refuse = [&](const char* why) {
    throw Error(Errc::bad_argument, fmt::format("{}: join: task {} {}", name_of(here.domain_, self), id, why));
  };
  TaskControl* task = self.cell->tasks.find(id);
  if (id == self.id) refuse("is the caller itself; a task cannot wait for its own end");
  if (task == nullptr) refuse("does not exist in this cell; join each task once, on the cell that made it");
  if (task->detached) refuse("is detached; only tasks with a handle can be joined");
  if (task->joiner != nullptr) refuse("is being joined by another task already");
  if (!task->ended) {
    if (here.domain_.stopping.load(std::memory_order_relaxed)) {  // relaxed: noticed sooner or later
      task->detached = true;
      end_calling_task();
      return;
    }
    task->joiner = &self;
    self.wait_task = id;
    if (wait(self, WaitFor::task_end, "join") == Wake::stopping) {
      // It may have ended since we were woken: then it is buried, and its stack may be another task's.
      task = self.cell->tasks.find(id);
      if (task != nullptr && task->joiner == &self) {
        task->joiner = nullptr;
        task->detached = true;
      }
      end_calling_task();
    }
    return;  // it was buried when its processor left its stack
  }
  here.bury(*task);
}

void Processor::wait_for_cells(TaskControl& self, const char* call) {
  Processor& here = *self.cell->processor;
  here.poll();
  if (here.all_cells_ended() || here.stops()) return;
  if (wait(self, WaitFor::cells_end, call) == Wake::stopping) end_calling_task();
}

void Processor::send_start(std::uint32_t cell, const Program& program) {
  push(route_[cell], SlotKind::start_task, cell, program.task, 0, &program);
}

}  // namespace aplib
