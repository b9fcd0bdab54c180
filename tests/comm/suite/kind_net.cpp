// SPDX-License-Identifier: MIT
#include "kind_net.hpp"

#include <stdexcept>

namespace aplib::comm::test {

PortSettings settings_of(const KindNetOptions& options) {
  return {.address = "127.0.0.1",
          .ports = {},
          .host = "host-of-the-test",
          .key = JobKey::make(),
          .secure = options.secure,
          .provider = options.provider};
}

KindNet::KindNet(const ModuleKind& kind, std::uint32_t processes, const KindNetOptions& options) : modules_(processes) {
  const PortSettings settings = settings_of(options);
  for (std::uint32_t process = 0; process < processes; ++process) {
    ports_.push_back(kind.open(settings));
    endpoints_.push_back(ports_.back()->endpoint());
    for (const std::string& other : endpoints_) {
      if (other != endpoints_.back() && !(kind.joins(other, endpoints_.back()) && kind.joins(endpoints_.back(), other)))
        throw std::runtime_error("joins() says that " + other + " and " + endpoints_.back() +
                                 " cannot exchange frames");
    }
  }
}

std::unique_ptr<Module> KindNet::module(Peer process) {
  std::unique_ptr<Module> made = ports_[process]->join({.machine = "machine-of-the-test",
                                                        .self = process,
                                                        .endpoints = endpoints_,
                                                        .names = std::vector<std::string>(endpoints_.size(), "here")});
  ports_[process] = nullptr;  // As in processes: the module must not need it.
  modules_[process] = made.get();
  return made;
}

}  // namespace aplib::comm::test
