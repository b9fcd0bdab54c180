// SPDX-License-Identifier: MIT
#include "kernel/condition.hpp"

#include "cell/processor.hpp"
#include "kernel/machine_impl.hpp"

namespace aplib::api {

Wake wait(const char* call, Condition& condition) {
  TaskControl& self = self_or_throw(call);
  const Wake how = Processor::wait_condition(self, call, condition);
  if (how == Wake::stopping) [[unlikely]] {
    condition.let_go();
    static_cast<void>(self.cell->processor->stops());
  }
  return how;
}

void stir(const char* call, bool waits) { self_or_throw(call).cell->processor->stir(!waits); }

void look_again(const char* call) {
  Idle& idle = self_or_throw(call).cell->processor->idle();
  if (idle.has_watches()) idle.check_watches();
}

std::uint32_t processor(const char* call) { return self_or_throw(call).cell->processor->index(); }

std::uint32_t processors(const char* call) { return self_or_throw(call).cell->processor->domain().carriers; }

bool is_local(const char* call, CellId cell) {
  return !self_or_throw(call).cell->processor->domain().is_elsewhere(index(cell));
}

}  // namespace aplib::api
