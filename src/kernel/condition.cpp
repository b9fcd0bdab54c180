// SPDX-License-Identifier: MIT
#include "kernel/condition.hpp"

#include <span>
#include <string>

#include "cell/one_sided.hpp"
#include "kernel/machine_impl.hpp"
#include "memory/slot.hpp"

namespace aplib::api {

TaskControl& task(const char* call) { return self_or_throw(call); }

Wake wait(TaskControl& self, const char* call, Condition& condition) {
  Wake how{};
  try {
    how = Processor::wait_condition(self, call, condition);
  } catch (...) {
    condition.let_go();
    throw;
  }
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

void wake(TaskControl& self, const char* call, CellId cell) {
  Domain& domain = self.cell->processor->domain();
  if (domain.is_local(index(cell))) return domain.wake_carriers();
  one_sided::Copy nothing;
  nothing.cell = index(cell);
  domain.network->put(self, call, nothing, false);
}

void look_again(TaskControl& self) noexcept {
  Idle& idle = self.cell->processor->idle();
  if (idle.has_watches()) idle.check_watches();
}

namespace {

/// All cells of this process have begun, or have ended before.
class AllBegun final : public Condition {
 public:
  explicit AllBegun(const Domain& domain) : Condition(&domain.begun_cells), domain_(domain) {}

  [[nodiscard]] bool holds() const noexcept override {
    return domain_.begun_cells.load(std::memory_order_acquire) >=
           domain_.local_count();  // acquire: what they have done
  }
  [[nodiscard]] bool needs(std::uint32_t /*cell*/) const noexcept override { return false; }
  [[nodiscard]] std::string missing() const override {
    std::string text;
    for (const std::uint32_t id : domain_.local_cells()) {
      const Cell& cell = *domain_.cells[id];
      if (!cell.has_begun && !cell.ended) text += (text.empty() ? "" : ", ") + domain_.name_of(id);
    }
    return text + " to call it, too";
  }
  void let_go() noexcept override {}

 private:
  const Domain& domain_;
};

}  // namespace

// Of those that share a thread, the first goes on last: it is often the one that does more than the others, who would
// have to wait until it has.
void begin_together(TaskControl& self, const char* call) {
  Domain& domain = self.cell->processor->domain();
  if (self.cell->has_begun || domain.has_host) return;
  domain.begun(*self.cell);
  AllBegun all(domain);
  if (all.holds()) {
    look_again(self);
  } else if (wait(self, call, all) != Wake::done) {
    return;
  }
  const std::span<const std::uint32_t> residents = self.cell->processor->residents();
  if (residents.size() > 1 && residents.front() == self.cell->id) Processor::yield(self);
}

std::uint32_t processors(const char* call) { return self_or_throw(call).cell->processor->domain().carriers; }

bool is_local(const char* call, CellId cell) {
  return !self_or_throw(call).cell->processor->domain().is_elsewhere(index(cell));
}

void* own_address_of(const char* call, CellId cell, void* address) {
  const std::uintptr_t own = SlotPlan::at(self_or_throw(call).cell->id);
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) - SlotPlan::at(index(cell)) + own);
}

}  // namespace aplib::api
