// SPDX-License-Identifier: MIT
#include "kernel/errand.hpp"

#include "kernel/machine_impl.hpp"
#include "kernel/module_network.hpp"

namespace aplib::api {

namespace {

ModuleNetwork& network_of(Domain& domain) { return static_cast<ModuleNetwork&>(*domain.network); }

}  // namespace

std::shared_ptr<Errands> errands(const char* call, std::unique_ptr<Errands> (*make)(Domain& domain)) {
  return network_of(self_or_throw(call).cell->processor->domain()).errands(make);
}

void send_errand(const char* call, CellId to, std::span<const std::byte> errand) {
  TaskControl& self = self_or_throw(call);
  network_of(self.cell->processor->domain()).send_errand(self, call, index(to), errand);
}

void answer_errand(Domain& domain, std::uint32_t process, std::span<const std::byte> errand) {
  network_of(domain).answer_errand(process, errand);
}

void stir_all(Domain& domain) noexcept { domain.wake_carriers(); }

}  // namespace aplib::api
