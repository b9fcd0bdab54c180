// SPDX-License-Identifier: MIT
#include "kernel/condition.hpp"

#include "kernel/machine_impl.hpp"
#include "memory/slot.hpp"

namespace aplib::api {

TaskControl& task(const char* call) { return self_or_throw(call); }

Wake wait(TaskControl& self, const char* call, Condition& condition) {
  const Wake how = Processor::wait_condition(self, call, condition);
  if (how == Wake::stopping) [[unlikely]] {
    condition.let_go();
    static_cast<void>(self.cell->processor->stops());
  }
  return how;
}

bool is_in_vain(const TaskControl& self, const Condition& condition) noexcept {
  return self.cell->processor->inbound().is_in_vain(condition);
}

void wake_others(TaskControl& self) noexcept { self.cell->processor->domain().wake_carriers(); }

void look_again(TaskControl& self) noexcept {
  Idle& idle = self.cell->processor->idle();
  if (idle.has_watches()) idle.check_watches();
}

std::uint32_t processors(const char* call) { return self_or_throw(call).cell->processor->domain().carriers; }

bool is_local(const char* call, CellId cell) {
  return !self_or_throw(call).cell->processor->domain().is_elsewhere(index(cell));
}

void* own_address_of(const char* call, CellId cell, void* address) {
  const std::uint64_t cells_between = index(cell) - std::uint64_t{self_or_throw(call).cell->id};
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) - cells_between * SlotPlan::bytes);
}

}  // namespace aplib::api
