// SPDX-License-Identifier: MIT
#include "kernel/debugger.hpp"

#include <cstddef>
#include <mutex>

#include "cell/domain.hpp"
#include "cell/matching.hpp"
#include "cell/processor.hpp"
#include "memory/slot.hpp"
#include "task/switch.hpp"

aplib::DebuggerMachine* aplib_debugger_machines = nullptr;

namespace aplib {

// Our structures have bases and private members. The standard knows no offsetof for them, but gcc and clang support it
// for every class without a virtual base.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

/// May look into private members.
struct DebuggerAccess {
  static DebuggerMachine*& next(DebuggerMachine& machine) noexcept { return machine.next_; }

  // A std::vector of libstdc++ and libc++ begins with the addresses of its first element and of the end.
  static const AplibDebuggerFact* facts() noexcept {
    static const AplibDebuggerFact table[] = {
        {"machine.domain", offsetof(DebuggerMachine, domain_)},
        {"machine.next", offsetof(DebuggerMachine, next_)},
        {"domain.cells", offsetof(Domain, cells)},
        {"domain.cell_count", offsetof(Domain, cell_count)},
        {"domain.host_id", offsetof(Domain, host_id)},
        {"domain.has_host", offsetof(Domain, has_host)},
        {"domain.processors", offsetof(Domain, processors)},
        {"cell.id", offsetof(Cell, id)},
        {"cell.x", offsetof(Cell, x)},
        {"cell.y", offsetof(Cell, y)},
        {"cell.processor", offsetof(Cell, processor)},
        {"cell.tasks", offsetof(Cell, tasks) + offsetof(TaskTable, tasks_)},
        {"cell.live_tasks", offsetof(Cell, live_tasks)},
        {"cell.ended", offsetof(Cell, ended)},
        {"cell.status", offsetof(Cell, status)},
        {"task.id", offsetof(TaskControl, id)},
        {"task.waits", offsetof(TaskControl, waits)},
        {"task.ready", offsetof(TaskControl, ready)},
        {"task.ended", offsetof(TaskControl, ended)},
        {"task.call", offsetof(TaskControl, call)},
        {"task.wait_task", offsetof(TaskControl, wait_task)},
        {"task.wish_key", offsetof(TaskControl, posted) + offsetof(Posted, wish) + offsetof(MatchWish, key)},
        {"task.wish_mask", offsetof(TaskControl, posted) + offsetof(Posted, wish) + offsetof(MatchWish, mask)},
        {"task.stack_low", offsetof(TaskControl, stack) + offsetof(Stack, low)},
        {"task.stack_top", offsetof(TaskControl, stack) + offsetof(Stack, top)},
        {"task.context", offsetof(TaskControl, context)},
        {"context.registers", parked_registers_offset()},
        {"wait.nothing", static_cast<std::uint64_t>(WaitFor::nothing)},
        {"wait.message", static_cast<std::uint64_t>(WaitFor::message)},
        {"wait.requests", static_cast<std::uint64_t>(WaitFor::requests)},
        {"wait.collective", static_cast<std::uint64_t>(WaitFor::collective)},
        {"wait.task_end", static_cast<std::uint64_t>(WaitFor::task_end)},
        {"wait.time", static_cast<std::uint64_t>(WaitFor::time)},
        {"wait.cells_end", static_cast<std::uint64_t>(WaitFor::cells_end)},
        {"wait.flag", static_cast<std::uint64_t>(WaitFor::flag)},
        {"wait.condition", static_cast<std::uint64_t>(WaitFor::condition)},
        {"wait.room", static_cast<std::uint64_t>(WaitFor::room)},
        {"key.cell_mask", MatchKey::cell_mask},
        {"key.cell_shift", MatchKey::cell_shift},
        {"key.task_mask", MatchKey::task_mask},
        {"key.task_shift", MatchKey::task_shift},
        {"key.type_mask", MatchKey::type_mask},
        {"slot.base", SlotPlan::base},
        {"slot.distance", SlotPlan::distance},
        {"slot.host", SlotPlan::host},
        {nullptr, 0},
    };
    return table;
  }
};

#pragma GCC diagnostic pop

namespace {

// One for the process, as the debugger sees it. It is never destroyed, because a machine may outlive static objects.
std::mutex& machines_mutex() noexcept {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace

DebuggerMachine::DebuggerMachine() noexcept {
  const std::lock_guard lock(machines_mutex());
  if (aplib_debugger_layout == nullptr) aplib_debugger_layout = DebuggerAccess::facts();
  next_ = aplib_debugger_machines;
  aplib_debugger_machines = this;
}

DebuggerMachine::~DebuggerMachine() {
  const std::lock_guard lock(machines_mutex());
  for (DebuggerMachine** place = &aplib_debugger_machines; *place != nullptr; place = &(*place)->next_) {
    if (*place != this) continue;
    *place = next_;
    return;
  }
}

bool has_machine() noexcept {
  const std::lock_guard lock(machines_mutex());
  return aplib_debugger_machines != nullptr;
}

}  // namespace aplib

const AplibDebuggerFact* aplib_debugger_layout = nullptr;
