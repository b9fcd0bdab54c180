// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "aplib/error.hpp"
#include "kernel/module_network.hpp"

namespace aplib {

namespace {
[[noreturn]] void not_yet(const TaskControl& self, const char* call) {
  throw Error(
      Errc::failed,
      fmt::format(
          "cell {} task {}: {}: the cell is in another process, which this version cannot reach by put and get yet",
          self.cell->id, self.id, call));
}
}  // namespace

void ModuleNetwork::put(TaskControl& self, const char* call, const one_sided::Copy&, bool) { not_yet(self, call); }
void ModuleNetwork::get(TaskControl& self, const char* call, const one_sided::Copy&) { not_yet(self, call); }
std::uint64_t ModuleNetwork::fetch(TaskControl& self, const char* call, const one_sided::Operation&) {
  not_yet(self, call);
}

}  // namespace aplib
