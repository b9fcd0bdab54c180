// SPDX-License-Identifier: MIT
#include "rdma_net.hpp"

#include <utility>

namespace aplib::comm::test {

RdmaNet::RdmaNet(std::uint32_t processes, RdmaNetOptions options)
    : options_(std::move(options)), key_(JobKey::make()), modules_(processes) {
  const std::unique_ptr<ModuleKind> kind = rdma_kind();
  for (std::uint32_t process = 0; process < processes && options_.mr_mode != 0; ++process) {
    rdma::ProviderChoice choice = rdma::choose_provider(settings(process));
    choice.info->domain_attr->mr_mode |= options_.mr_mode;
    fabrics_.push_back(std::make_shared<rdma::Fabric>(std::move(choice.info)));
  }
  for (std::uint32_t process = 0; process < processes && options_.mr_mode == 0; ++process) {
    ports_.push_back(kind->open(settings(process)));
    endpoints_.push_back(ports_.back()->endpoint());
  }
}

PortSettings RdmaNet::settings(Peer process) const {
  return {.address = "127.0.0.1",
          .ports = {},
          .host = "the host",
          .key = process == options_.stranger ? JobKey::make() : key_,
          .secure = options_.secure,
          .provider = options_.provider,
          .peer_timeout = options_.peer_timeout};
}

std::unique_ptr<Module> RdmaNet::module(Peer process) {
  if (options_.mr_mode != 0) {
    std::vector<std::vector<std::byte>> names;
    for (const std::shared_ptr<rdma::Fabric>& fabric : fabrics_) names.push_back(fabric->name());
    auto made = std::make_unique<rdma::RdmaModule>(
        rdma::Settings{settings(process),
                       {.machine = "machine-of-the-test", .self = process, .endpoints = {}, .names = {}},
                       fabrics_[process],
                       names});
    modules_[process] = made.get();
    return made;
  }
  std::unique_ptr<Module> made =
      ports_[process]->join({.machine = "machine-of-the-test", .self = process, .endpoints = endpoints_, .names = {}});
  modules_[process] = static_cast<rdma::RdmaModule*>(made.get());
  fabrics_.push_back(modules_[process]->fabric());
  return made;
}

}  // namespace aplib::comm::test
