// SPDX-License-Identifier: MIT
#include "cell/processor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "aplib/error.hpp"
#include "base/text.hpp"
#include "cell/baton.hpp"
#include "cell/domain.hpp"

namespace aplib {

namespace {

constexpr std::uint64_t cycles_per_network_look = 50'000;  // 15 to 50 us
constexpr std::uint32_t flag_spins = 200;
constexpr std::size_t backlog_max = 4096;  // messages that a receiver may lag behind before the sender lets others run
constexpr auto room_sleep = std::chrono::milliseconds(1);
constexpr std::size_t host_stack_bytes_min = std::size_t{8} << 20;  // they were written for a process's main stack

/// `alignment`: a power of two.
char* align_down(char* address, std::size_t alignment) noexcept {
  return address - (reinterpret_cast<std::uintptr_t>(address) & (alignment - 1));
}

std::string name_of(const Domain& domain, const TaskControl& task) {
  return fmt::format("{} task {}", domain.name_of(task.cell->id), task.id);
}

[[noreturn, gnu::cold, gnu::noinline]] void bad_destination(Domain& domain, const TaskControl& self, const char* call,
                                                            std::uint32_t cell, To to) {
  std::string text;
  if (cell >= domain.cell_count && !(domain.has_host && cell == domain.host_id)) {
    text = fmt::format("there is no cell {}; the machine has cells 0..{} ({}x{})", static_cast<std::int32_t>(cell),
                       domain.cell_count - 1, domain.grid.nx, domain.grid.ny);
    if (domain.has_host) text += fmt::format(" and the host program, {}", domain.host_id);
  } else if (to.type < 0 || to.type > message_type_max) {
    text = fmt::format("message type {} is out of range; use 0..{}", to.type, message_type_max);
  } else {
    text = fmt::format("task {} is out of range; use 0..{}", static_cast<std::int32_t>(aplib::index(to.task)),
                       task_id_max);
  }
  refuse(self, Errc::bad_argument, call, text);
}

/// Runs `part` of a task's life; what it throws ends the task, or the machine. False: the program itself has thrown.
/// Works without memory.
template <class Part>
bool guarded(TaskControl& self, Domain& domain, Part part) noexcept {
  try {
    part();
    return true;
  } catch (const TaskExit& exit) {
    if (exit.status != 0 && self.cell->status == 0) self.cell->status = exit.status;
    return true;
  } catch (const Stopped&) {
    return true;  // the machine stops; whoever stopped it has said why
  } catch (...) {
    self.cell->status = static_cast<int>(ExitStatus::program_failed);
    char name[64];
    *fmt::format_to_n(name, sizeof name - 1, "{} task {}", domain.name_of(self.cell->id), self.id).out = '\0';
    domain.fail_by_exception(name);
    return false;
  }
}

[[gnu::noinline]] void leave_used_memory(TaskControl& self, bool lasts) noexcept {
  void* const rank = self.cell->mpi.rank;
  const auto leave = detail::leave_memory.load(std::memory_order_relaxed);  // relaxed: what it reads is the cell's
  if (rank != nullptr && leave != nullptr) [[unlikely]]
    leave(rank, self.id);
  if (!self.requests.empty() || self.lent != nullptr) self.cell->processor->inbound().close_requests(self, lasts);
}

/// Before the task's program leaves its memory, or the task its stack.
[[gnu::always_inline]] inline void leave_memory(TaskControl& self, bool lasts) noexcept {
  if (self.cell->mpi.rank != nullptr || !self.requests.empty() || self.lent != nullptr) leave_used_memory(self, lasts);
}

}  // namespace

namespace detail {
constinit thread_local Processor* current_processor = nullptr;
constinit std::atomic<LeaveMemory> leave_memory{nullptr};
}  // namespace detail
using detail::current_processor;

void enter_program(TaskControl& self, ProgramContext* program) noexcept {
  self.program = program;
  if (program != nullptr && program->stays) self.cell->stays = true;
  current_program_context = program;
}

// ---------------------------------------------------------------- the thread

Processor::Processor(Domain& domain, std::uint32_t index, ProcessorRole role)
    : domain_(domain),
      index_(index),
      outbound_(domain),
      idle_(*this, domain),
      inbound_(*this, domain, idle_),
      mover_(*this, domain),
      role_(role),
      collectives_(*this, domain) {}

Processor::~Processor() = default;

void Processor::prepare() {
  network_ = domain_.network;
  network_index_ = domain_.network_index;
  if (is_host()) index_ = domain_.carriers;  // behind them
  if (pool_ == nullptr) pool_ = &domain_.pools->add();
  pool_->set_place(index_, static_cast<std::uint32_t>(domain_.processors.size()));
  cell_limit_ = domain_.carriers != 0 ? domain_.cell_count : 0;
  for (const Cell* cell : domain_.cells) {
    if (cell->processor == this && cell != domain_.host_cell.get()) residents_.push_back(cell->id);
  }
  count_live_residents();
  outbound_.prepare(index_, is_network(), *pool_, unread_);
  inbound_.prepare(index_, *pool_, unread_);
  idle_.prepare();
  mover_.prepare();
}

void Processor::run() {
  current_processor = this;
  thread_number_.store(::gettid(), std::memory_order_relaxed);  // relaxed: as thread()
  if (domain_.thread_prologue) domain_.thread_prologue(index_);
  thread_.attach();
  adopt_thread(base_);
  idle_.begin();
  if (domain_.start_at_once && !is_host()) {
    for (const std::uint32_t cell : residents_) start_program(*domain_.cells[cell], domain_.first_program);
  }
  while (true) {
    TaskControl* next = idle_.pop_ready();
    if (next == nullptr) next = idle_.await_ready(nullptr);
    if (next == nullptr) break;
    switch_to_task(base_, *next, false);
    landed();
  }
  pool_->flush();
  current_processor = nullptr;
}

ThreadState& Processor::switch_to_task(Flow& from, TaskControl& to, bool ends) {
  to.ready = false;
  running_.store(&to, std::memory_order_release);  // release: to glimpse()
  return switch_to(thread_, from, to, ends);
}

void Processor::take_over(TaskControl& task) noexcept {
  detail::current_processor = this;
  running_.store(&task, std::memory_order_release);  // release: to glimpse()
}

void Processor::landed() noexcept {
  if (thread_.ended == nullptr) return;
  auto& dead = static_cast<TaskControl&>(*std::exchange(thread_.ended, nullptr));
  if (dead.detached) bury(dead);
}

// Leaves `self` for the next ready task. Returns when `self` is ready again, perhaps on another processor.
[[gnu::always_inline]] inline void Processor::dispatch(TaskControl& self) noexcept {
  const std::uint32_t switches = count_switch(1);
  if ((switches & 7U) == 0) [[unlikely]] {
    look_around();
    if ((switches & 255U) == 0 && idle_.has_timers()) idle_.expire_timers(Clock::now());
    if (baton_ != nullptr) return baton_->dispatch(self);
    if (idle_.ready().has_several() &&
        domain_.idle_processors.load(std::memory_order_relaxed) != 0) {  // relaxed: a hint
      mover_.offer_cells(self);
    }
  }
  TaskControl* next = idle_.pop_ready();
  if (next == nullptr) {
    next = idle_.await_ready(&self);
  } else if (network_ != nullptr) [[unlikely]] {
    look_after_network();
  }
  if (next == &self) {
    self.ready = false;
    return;
  }
  if (switch_to_task(self, *next, false).ended != nullptr) [[unlikely]]
    self.cell->processor->landed();
}

Wake Processor::wait(TaskControl& self, WaitFor what, const char* call) noexcept {
  Processor& here = *self.cell->processor;
  self.waits = what;
  self.call = call;
  self.wake = Wake::done;
  self.wait_since = here.idle_.coarse_now();
  here.dispatch(self);
  self.waits = WaitFor::nothing;
  return self.wake;
}

// Between two tasks. What the last one has sent goes out now, for the next one may compute for long; and for the
// same reason we look what has come.
void Processor::look_after_network() noexcept {
  if (network_->holds_back.load(std::memory_order_relaxed)) network_->flush();  // relaxed: a hint
  const std::uint64_t now = cycles();
  if (now - last_network_look_ < cycles_per_network_look) return;
  last_network_look_ = now;
  domain_.guarded([this] { network_->poll_if_due(); });
}

bool Processor::poll_network() noexcept {
  bool polled = true;
  domain_.guarded([&] { polled = network_->poll(); });
  return polled;
}

// A task whose destructors run may call us, and what they throw would end the process.
bool Processor::end_calling_task() {
  current()->domain_.take_memory_back();
  if (std::uncaught_exceptions() != 0) return true;
  prepare_to_unwind();
  throw Stopped{};
}

void Processor::prepare_to_unwind() noexcept {
  TaskControl* const self = running_task();
  if (self != nullptr) self->cell->processor->inbound_.close_requests(*self);  // null: a thread that a program has made
}

// The machine is stopping: every task that waits here is woken to unwind.
void Processor::stop_tasks() {
  stop_seen_ = true;
  idle_.forget_waits();
  collectives_.forget_waits();
  const auto stop_cell = [this](Cell& cell) {
    for (std::uint32_t id = 0; id < cell.tasks.end(); ++id) {
      TaskControl* task = cell.tasks.find(id);
      if (task != nullptr) inbound_.wake_waiting(*task, Wake::stopping);
    }
  };
  for (const std::uint32_t cell : residents_) stop_cell(*domain_.cells[cell]);
  if (is_host()) stop_cell(*domain_.host_cell);
}

void Processor::count_live_residents() noexcept {
  const auto live =
      std::ranges::count_if(residents_, [this](std::uint32_t cell) { return !domain_.cells[cell]->ended; });
  live_residents_.store(static_cast<std::uint32_t>(live), std::memory_order_relaxed);  // relaxed: a measure
}

void Processor::remove_resident(std::uint32_t cell) {
  std::erase(residents_, cell);
  count_live_residents();
}

void Processor::add_resident(std::uint32_t cell) {
  residents_.insert(std::lower_bound(residents_.begin(), residents_.end(), cell), cell);
  stop_seen_ = false;  // stop its tasks, too
  count_live_residents();
}

// ---------------------------------------------------------------- messages

void Processor::send_to_host(const char* call, std::uint32_t cell, std::span<const std::byte> bytes, To to,
                             std::uint32_t space) {
  TaskControl& self = *running_task();
  const Processor& here = *self.cell->processor;
  Domain& domain = here.domain_;
  if (cell < domain.cell_count && here.cell_limit_ == 0) {
    refuse(self, Errc::failed, call, "no program runs on the cells yet; start one first (ccreat, start_cells)");
  }
  const bool to_host = cell >= domain.cell_count && domain.has_host && cell == domain.host_id;
  if (!to_host || !is_in_range(to)) bad_destination(domain, self, call, cell, to);
  send_otherwise(call, domain.cell_count, aplib::index(to.task),
                 MatchKey::make(space, self.cell->id, self.id, static_cast<std::uint32_t>(to.type)), bytes);
}

void Processor::take_unawaited(Cell& cell, std::uint32_t task, std::uint64_t key, std::span<const std::byte> bytes) {
  const std::size_t waiting = inbound_.take_local(cell, task, key, bytes);
  if (waiting > backlog_max && idle_.has_ready()) [[unlikely]]
    yield(*running());  // let it catch up, while that is all it takes
}

void Processor::send_otherwise(const char* call, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
                               std::span<const std::byte> bytes) {
  TaskControl& self = *running_task();
  Processor& here = *self.cell->processor;
  if (!here.domain_.send_gate.closed()) [[likely]] {
    const std::uint32_t processor = here.outbound_.route(cell);
    if (processor == here.network_index_) return here.network_->send(self, call, cell, task, key, bytes);
    if (processor != here.index_) {
      if (here.outbound_.try_small(processor, cell, task, key, bytes)) return;
      if (here.outbound_.try_buffered(processor, cell, task, key, bytes)) return;
    } else if (here.mover_.protocol().arriving() != cell) [[likely]] {
      return here.take_unawaited(*here.domain_.cells[cell], task, key, bytes);
    }
  }
  send_when_open(self, call, cell, task, key, bytes);
}

void Processor::send_with_key(TaskControl& self, const char* call, std::uint32_t cell, std::span<const std::byte> bytes,
                              std::uint32_t task, std::uint64_t key) {
  if (cell >= cell_limit_) [[unlikely]]
    bad_destination(domain_, self, call, cell, {.task = TaskId{task}});
  send_checked(call, cell, task, key, bytes);
}

// A message on any of its ways.
void Processor::route_message(TaskControl& self, const char* call, std::uint32_t target, std::uint32_t task,
                              std::uint64_t key, std::span<const std::byte> bytes) {
  const std::uint32_t processor = outbound_.route(target);
  if (processor == network_index_) {
    network_->send(self, call, target, task, key, bytes);
  } else if (processor != index_) {
    outbound_.send(target, processor, task, key, bytes);
    if (outbound_.backlog_count() > backlog_max && idle_.has_ready()) [[unlikely]]
      yield(self);  // polling empties it
  } else if (mover_.protocol().arriving() == target) {
    outbound_.keep(target, task, key, bytes);
  } else {
    static_cast<void>(inbound_.take_local(*domain_.cells[target], task, key, bytes));
  }
}

// Not a small message that goes at once; or the gate is closed. Then the machine stops, which a task that never waits
// must notice, too, or too much waits unread in this process: a message that a task of this processor waits for still
// arrives, and others wait until some have been received. So a program whose messages fit under the limit never waits;
// one whose receivers are slow runs at their pace; and where nobody receives any more, an error says so. Those of MPI
// end without the help of others: those wait only while somebody receives. (Messages to other processes wait where they
// arrive.)
void Processor::send_when_open(TaskControl& self, const char* call, std::uint32_t target, std::uint32_t task,
                               std::uint64_t key, std::span<const std::byte> bytes) {
  Domain& domain = self.cell->processor->domain_;
  std::int64_t least = INT64_MAX;
  Clock::time_point since{};
  const bool is_of_mpi = ContextKey::is_of_mpi(key);
  while (true) {
    const bool yields = is_of_mpi && (!ContextKey::is_from_rank_to_rank(key) ||
                                      domain.room_is_stalled.load(std::memory_order_relaxed));  // relaxed: a hint
    Processor& here = *self.cell->processor;
    if (!domain.send_gate.closed()) return here.route_message(self, call, target, task, key, bytes);
    if (here.stops()) return;
    const std::uint32_t processor = here.outbound_.route(target);
    if (domain.has_room() || processor == here.network_index_ || yields ||
        (processor == here.index_ && Inbound::is_awaited(*domain.cells[target], task, key)))
      return here.route_message(self, call, target, task, key, bytes);
    const std::int64_t unread = domain.unread_bytes();
    const Clock::time_point now = Clock::now();
    if (unread < least) {
      least = unread;
      since = now;
    } else if (is_of_mpi && now - since > Domain::stall_max) {
      domain.room_is_stalled.store(true, std::memory_order_relaxed);  // relaxed: a hint
      continue;
    } else if (now - since > domain.options.send_wait) {
      throw Error(
          Errc::exhausted,
          fmt::format("{}: {}: {} MiB of messages wait in this process to be received, and none has been for {}; "
                      "let {} and others receive more often, send less at a time, or raise unread-limit "
                      "(APLIB_UNREAD_LIMIT) or send-wait",
                      name_of(domain, self), call, unread >> 20, text::print_duration(domain.options.send_wait),
                      domain.name_of(target)));
    }
    here.idle_.add_timer(now + room_sleep, self);
    if (wait(self, WaitFor::room, call) == Wake::stopping) {
      end_calling_task();
      return;
    }
  }
}

bool Processor::probe(TaskControl& self, const TaskControl& owner, const MatchWish& wish) {
  if (!Inbound::has(owner, wish)) {
    poll();
    if (!Inbound::has(owner, wish)) {
      if (!idle_.shall_yield_after(++self.probe_misses)) return false;
      self.probe_misses = 0;
      yield(self);
      return Inbound::has(owner, wish);
    }
  }
  self.probe_misses = 0;
  return true;
}

// ---------------------------------------------------------------- waiting

namespace {

/// No task is ready: whether one is after all, or another thread wants the processor. Apart from yield(), which has
/// little to do where tasks are ready.
[[gnu::noinline]] bool finds_work(Processor& here) {
  Idle& idle = here.idle();
  Network* const network = here.domain().network;
  bool is_in_vain = true;
  if (network != nullptr) {
    const std::uint64_t arrivals = network->arrivals();
    if (here.poll_network()) here.poll();
    is_in_vain = network->arrivals() == arrivals;  // else it may be what the task looks for
  }
  if (idle.has_timers()) idle.expire_timers(Clock::now());
  if (idle.has_ready() || here.is_wanted()) return true;
  if (is_in_vain) idle.look_in_vain();
  return false;
}

}  // namespace

void Processor::yield(TaskControl& self) {
  Processor& here = *self.cell->processor;
  static_cast<void>(here.stops());  // who unwinds lets others unwind, too
  here.poll();
  Idle& idle = here.idle_;
  if (idle.has_watches()) idle.check_watches();
  if (!idle.has_ready() && !finds_work(here)) return;
  idle.make_ready(self);
  here.dispatch(self);
}

// A machine that stops is noticed by the program's next call.
void Processor::give_way(TaskControl& self) noexcept {
  Processor& here = *self.cell->processor;
  if (here.domain_.stopping.load(std::memory_order_relaxed)) return;  // relaxed: as stops()
  here.look_around();
  if (here.idle_.has_timers()) here.idle_.expire_timers(Clock::now());
  if (!here.idle_.has_ready()) return;
  self.cell->interrupted = true;
  here.idle_.make_ready(self);
  here.dispatch(self);
  self.cell->interrupted = false;
}

void Processor::sleep_until(TaskControl& self, Clock::time_point deadline, const char* call) {
  Processor& here = *self.cell->processor;
  if (here.stops()) return;
  here.idle_.add_timer(deadline, self);
  if (wait(self, WaitFor::time, call) == Wake::stopping) end_calling_task();
}

bool Processor::wait_flag(TaskControl& self, const char* call, const std::int32_t* flag, std::int32_t count) {
  if (Watch::has_reached(flag, count)) [[likely]]
    return true;
  self.watch = Watch{.flag = flag, .count = count};
  Processor& here = *self.cell->processor;
  if (here.stops()) return false;
  if (here.spin_on_watch(self)) return true;
  here.idle_.add_watch(self);
  if (wait(self, WaitFor::flag, call) == Wake::done) return true;
  end_calling_task();
  return false;
}

// The answer of another processor takes some 100 ns, less than to begin to wait. Where others of this processor wait,
// too, it may be us whom they wait for.
bool Processor::spin_on_watch(const TaskControl& self) const noexcept {
  if (idle_.has_ready() || idle_.has_watches() || network_ != nullptr || domain_.poll_time.count() == 0) return false;
  for (std::uint32_t spin = 0; spin < flag_spins; ++spin) {
    if (self.watch.reached()) return true;
  }
  return false;
}

Wake Processor::wait_condition(TaskControl& self, const char* call, const Condition& condition) {
  Processor& here = *self.cell->processor;
  if (here.domain_.stopping.load(std::memory_order_relaxed)) return Wake::stopping;  // relaxed: as stops()
  if (here.inbound_.is_in_vain(condition)) return Wake::ended;
  self.watch = Watch{.condition = &condition};
  if (condition.is_about_memory() && here.spin_on_watch(self)) return Wake::done;
  here.idle_.add_watch(self);
  return wait(self, WaitFor::condition, call);
}

void Processor::join(TaskControl& self, std::uint32_t id) {
  Processor& here = *self.cell->processor;
  const auto refuse = [&](const char* why) {
    aplib::refuse(self, Errc::bad_argument, "join", fmt::format("task {} {}", id, why));
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
  if (here.inbound_.all_cells_ended() || here.stops()) return;
  if (wait(self, WaitFor::cells_end, call) == Wake::stopping) end_calling_task();
}

// ---------------------------------------------------------------- the life of a task

// Runs on the new task's stack.
void task_body(Flow& flow) {
  auto& self = static_cast<TaskControl&>(flow);
  self.cell->processor->landed();
  Domain& domain = self.cell->processor->domain_;
  bool lasts = true;                                       // what its requests read and write
  if (!domain.stopping.load(std::memory_order_relaxed)) {  // relaxed: noticed sooner or later
    lasts = guarded(self, domain, [&self] {
      if (self.program == nullptr) {
        self.entry(self.entry_state);
      } else {
        self.program->ops->run(*self.program, self.entry, self.entry_state);
      }
    });
  }
  leave_memory(self, lasts);
  if (self.program != nullptr) {
    guarded(self, domain, [&self] { self.program->ops->release(self.program); });
    enter_program(self, nullptr);
  }
  self.cell->processor->end_task(self);
}

void Processor::end_terminating_task() noexcept {
  TaskControl* const self = current_processor != nullptr ? current_processor->running() : nullptr;
  if (self == nullptr) return;
  Domain& domain = self->cell->processor->domain_;
  int status = 0;
  bool exits = false;
  try {
    if (std::current_exception() == nullptr) return;
    throw;
  } catch (const TaskExit& exit) {
    status = exit.status;
    exits = true;
  } catch (const Stopped&) {
    // whoever stopped the machine has said why
  } catch (...) {
    return;
  }
  if (exits) {
    domain.guarded([&] {
      domain.report(
          fmt::format("{}: this_task::exit() was called below a noexcept function, or below one without unwind tables: "
                      "the task has ended, but objects on its stack were not destroyed; call it elsewhere, or compile "
                      "C with -fexceptions",
                      name_of(domain, *self)));
    });
  }
  leave_memory(*self, true);
  if (self->program != nullptr) self->program->ops->abandon(*self->program, status, exits);
  if (status != 0 && self->cell->status == 0) self->cell->status = status;
  self->cell->processor->end_task(*self);
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
  ProgramContext* program = nullptr;
  try {
    if (what.parent != nullptr) program = what.parent->ops->inherit(*what.parent);
    what.move(state_place, what.state);
  } catch (...) {
    if (program != nullptr) program->ops->discard(program);
    task->~TaskControl();
    stacks->put(stack);
    cell.tasks.give_back(id);
    throw;
  }
  // From here on nothing throws, so nobody ever sees half a task.
  prepare_flow(*task, task_body, state_place, static_cast<std::size_t>(state_place - stack.low));
  task->program = program;
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

void Processor::start_program(Cell& cell, const CellProgram& program) {
  const CellProgram* pointer = &program;
  const bool was_live = cell.live_tasks != 0;
  const TaskControl* started = nullptr;
  const char* problem = "";
  std::string no_stack;
  if (cell.tasks.find(program.task) != nullptr) {
    problem = "there is one already; choose another task id";
  } else if (baton_ != nullptr) {
    problem = "threads of the program that runs there call; start the other one when that has ended";
  } else {
    try {
      started = &spawn(
          cell, program.task,
          {.entry = [](void* state) { (*static_cast<const CellProgram**>(state))->body(); },
           .state = &pointer,
           .state_bytes = sizeof pointer,
           .state_alignment = alignof(const CellProgram*),
           .move = [](void* to,
                      void* from) { *static_cast<const CellProgram**>(to) = *static_cast<const CellProgram**>(from); },
           .program_stack_bytes = program.stack_bytes,
           .detached = true,
           .from_kernel = true});
    } catch (const Error& error) {
      domain_.guarded([&] { no_stack = error.what(); });
      problem = no_stack.c_str();
    } catch (const std::bad_alloc&) {  // nor words for it
      domain_.fail_by_exception(nullptr);
    }
  }
  if (*problem != '\0') {
    domain_.guarded([&] {
      domain_.fail(static_cast<int>(ExitStatus::program_failed),
                   fmt::format("{}: cannot start a task {}: {}", domain_.name_of(cell.id), program.task, problem));
    });
  }
  if (started == nullptr || was_live) drop_live_cell();  // whoever asked for the start has counted this cell once more
  if (started == nullptr) return;
  cell.ended = false;
  count_live_residents();
}

// Runs on the ending task's stack and leaves it for good.
void Processor::end_task(TaskControl& self) {
  Cell& cell = *self.cell;
  if (!self.requests.empty() || self.lent != nullptr) inbound_.close_requests(self);
  self.ended = true;
  if (self.stack.guard == StackGuard::canary) domain_.guarded([&] { check_canary(self); });
  if (domain_.on_unread && !self.mailbox.empty() &&
      !domain_.stopping.load(std::memory_order_relaxed))  // relaxed: a task that is stopped leaves much unread
    domain_.guarded([&] { domain_.on_unread(self); });
  if (!self.mailbox.empty()) inbound_.drop_leases(self);
  if (self.from_kernel) ++cell.ended_from_kernel;
  if (self.joiner != nullptr) {
    self.detached = true;  // the joiner needs nothing but to know
    if (self.joiner->waits == WaitFor::task_end && !self.joiner->ready) make_ready(*self.joiner);
  }
  if (--cell.live_tasks == 0) domain_.guarded([&] { end_cell(cell); });
  thread_.ended = &self;
  count_switch(8);  // so that dispatch() meets the numbers that it looks for, however many tasks end in between
  TaskControl* next = idle_.pop_ready();
  if (next != nullptr) {
    switch_to_task(self, *next, true);
  } else {
    running_.store(nullptr, std::memory_order_relaxed);  // relaxed: for ourselves
    switch_to(thread_, self, base_, true);
  }
  __builtin_unreachable();
}

void Processor::bury(TaskControl& task) noexcept {
  Cell& cell = *task.cell;
  cell.tasks.erase(task.id);
  if (!task.mailbox.empty()) inbound_.empty_mailbox(task);
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
  if (!is_host()) domain_.begun(cell);
  std::atomic_ref(cell.ended).store(true, std::memory_order_relaxed);  // relaxed: the progress thread asks, too
  count_live_residents();
  struct Drop {  // whatever happens: else the machine would wait for this cell for ever
    Processor& processor;
    ~Drop() { processor.drop_live_cell(); }
  } const drop{*this};
  CellEnd end = cell.end();
  if (!is_host()) domain_.note_end(cell.id, end.status);
  if (is_host()) end.tasks = domain_.programs_started.load(std::memory_order_relaxed);  // relaxed: counted by the host
  // The network's processor is told, too: it is behind the threads.
  outbound_.push_to_threads(EntryKind::cell_ended, cell.id, end, index_);
  if (network_ != nullptr) {
    outbound_.push(network_index_, EntryKind::cell_ended, cell.id, 0, MatchKey::make(0, cell.id, 0, 0), end);
  }
  if (!mover_.postpone_end(cell.id)) inbound_.cell_ended(cell.id, end);
}

void Processor::drop_live_cell() noexcept {
  if (domain_.live_cells.fetch_sub(1, std::memory_order_acq_rel) == 1) {  // acq_rel: the last one has seen what all did
    if (network_ != nullptr) {
      // Other processes' cells may still run: the end is for the overseer to tell, unless all stop anyway; see
      // Domain::stop().
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

}  // namespace aplib
