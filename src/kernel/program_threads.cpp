// SPDX-License-Identifier: MIT
#include "kernel/program_threads.hpp"

#include <fmt/format.h>

#include "aplib/machine.hpp"
#include "cell/baton.hpp"
#include "kernel/machine_impl.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"

namespace aplib {

namespace {

/// The program's threads may call: the task has its cell and a processor for itself.
bool can_admit(const TaskControl& self) noexcept {
  const Domain& domain = self.cell->processor->domain();
  return (self.program != nullptr || is_adopted(self)) && self.cell->live_tasks == 1 && !domain.has_host &&
         domain.carriers == domain.local_count();
}

void admit(Cell& cell) noexcept {
  cell.stays = true;
  cell.threads_call = true;
}

}  // namespace

bool begin_threads(TaskControl& self, bool ask) {
  Cell& cell = *self.cell;
  cell.has_threads = true;
  // One of them may be the first to call, and then it is too late for the baton.
  if (ask && !cell.has_decided_on_threads && can_admit(self)) admit(cell);
  // Not in the middle of a call, which would not give the baton on at its end. Relaxed: its maker is our thread.
  if (!cell.threads_call || cell.callbacks != 0 || self.is_guest ||
      cell.baton.load(std::memory_order_relaxed) != nullptr)
    return false;
  cell.baton.store(new Baton(self), std::memory_order_release);  // release: its making
  return true;
}

namespace {

Cell* cell_of_thread() noexcept {
  const loader::TaskContext* const context = loader::here();
  return context != nullptr ? context->instance->services().cell() : adopted_cell();
}

Baton* baton_of_thread() noexcept {
  const Cell* const cell = cell_of_thread();
  return cell != nullptr ? cell->baton.load(std::memory_order_acquire) : nullptr;  // acquire: its making
}

}  // namespace

const TaskControl* task_of_thread() noexcept {
  if (const TaskControl* const self = running_task()) return self;
  const Baton* const baton = baton_of_thread();
  return baton != nullptr && baton->is_main_thread() ? &baton->main_task() : nullptr;
}

namespace api {

Threads admit_threads(const char* call) {
  TaskControl& self = self_or_throw(call);
  Cell& cell = *self.cell;
  // The launch gives each cell of a program that makes threads a processor of its own, unless the user has said
  // otherwise (threads_for() in programs.cpp).
  const bool is_auto = cell.processor->domain().options.threads == Options::threads_auto;
  if (!can_admit(self)) return is_auto && self.program != nullptr ? Threads::never : Threads::none;
  admit(cell);
  if (is_adopted(self)) cell.has_threads = true;  // nobody tells when it makes some
  return cell.has_threads && begin_threads(self, false) ? Threads::run : Threads::may_come;
}

bool is_process(const char* call) { return is_adopted(self_or_throw(call)); }

std::uint32_t begin_calls(const char* call) {
  TaskControl& self = self_or_throw(call);
  self.cell->has_decided_on_threads = true;
  const Baton* const baton = self.is_guest ? self.cell->processor->baton() : nullptr;
  return baton != nullptr ? baton->main_task().id : self.id;
}

namespace {

/// By the innermost function of the program that a call has called on this thread.
[[gnu::tls_model("initial-exec")]] constinit thread_local Baton* lent_baton = nullptr;

}  // namespace

Entry enter_cell() {
  if (running_task() != nullptr) return Entry::inside;
  if (lent_baton != nullptr) {
    lent_baton->take_back();
    return Entry::entered;
  }
  Baton* const baton = baton_of_thread();
  if (baton == nullptr) return Entry::refused;
  return baton->enter() ? Entry::entered : Entry::too_late;
}

void leave_cell() noexcept {
  if (running_task() == nullptr) return;  // the call has ended the machine, and left
  if (lent_baton != nullptr) return lent_baton->lend();
  if (Baton* const baton = running_task()->cell->processor->baton()) baton->leave();  // null: the call has closed it
}

InCallback::InCallback() noexcept
    : cell_(running_task() != nullptr ? running_task()->cell : nullptr), lent_before_(lent_baton) {
  if (cell_ == nullptr) return;
  ++cell_->callbacks;
  if (!running_task()->is_guest || cell_ != adopted_cell()) return;
  lends_ = lent_baton = cell_->processor->baton();
  if (lends_ != nullptr) lends_->lend();
}
InCallback::~InCallback() {
  if (lends_ != nullptr) lends_->take_back();
  lent_baton = lent_before_;
  if (cell_ != nullptr) --cell_->callbacks;
}

Visit visit_cell() {
  const Entry entry = enter_cell();
  return {entry, mpi_rank_of_thread()};
}

void* mpi_rank_of_task() noexcept {
  const TaskControl* const self = running_task();
  return self != nullptr ? self->cell->mpi.rank : nullptr;
}

void* mpi_rank_of_thread() noexcept {
  if (const TaskControl* const self = running_task()) return self->cell->mpi.rank;
  const Cell* const cell = cell_of_thread();
  return cell != nullptr ? cell->mpi.rank : nullptr;
}

bool is_thread_of_program() noexcept { return loader::here() != nullptr || adopted_cell() != nullptr; }

bool is_main_thread() noexcept {
  if (const TaskControl* const self = running_task()) return !self->is_guest;
  const Baton* const baton = baton_of_thread();
  return baton != nullptr && baton->is_main_thread();
}

void fail_on_thread(const char* call, const std::string& text) {
  const loader::TaskContext* const context = loader::here();
  if (context != nullptr)
    context->instance->services().fail(static_cast<int>(ExitStatus::program_failed), fmt::format("{}: {}", call, text));
  Cell* const cell = adopted_cell();
  if (cell == nullptr) return;
  Domain& domain = cell->processor->domain();
  if (domain.over.load(std::memory_order_acquire)) return;  // acquire: as in Idle::await_ready()
  domain.fail(static_cast<int>(ExitStatus::program_failed),
              fmt::format("{} thread: {}: {}", domain.name_of(cell->id), call, text));
}

void end_stopped_thread() noexcept {
  const loader::TaskContext* const context = loader::here();
  if (context != nullptr && running_task() == nullptr && !is_main_thread()) context->instance->leave(0, false);
}

}  // namespace api
}  // namespace aplib
