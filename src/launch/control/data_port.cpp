// SPDX-License-Identifier: MIT
#include "launch/control/data_port.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "aplib/error.hpp"
#include "comm/greeting.hpp"
#include "launch/control/this_host.hpp"

namespace aplib::launch {

DataPort::DataPort(const Options& options, const std::string& address, const comm::JobKey& key) {
  const std::vector<std::string> names = comm::wished_modules(options.module);
  if (names.empty()) found_ = comm::find_modules(options.module_path);
  // Those that are not named are not opened: some need libraries that take long to load.
  for (const std::string& name : names) {
    std::vector<comm::FoundModule> found = comm::find_modules(options.module_path, name);
    if (comm::kind_of(found, name) == nullptr) throw Error(Errc::bad_option, comm::unknown_module(found, name));
    std::ranges::move(found, std::back_inserter(found_));
  }
  std::vector<const comm::ModuleKind*> kinds;
  for (const comm::FoundModule& each : found_)
    if (each.kind != nullptr && comm::kind_of(found_, each.kind->name()) == each.kind.get())
      kinds.push_back(each.kind.get());
  const comm::PortSettings settings{
      .address = address,
      .ports = options.ports,
      .host = shared_memory_domain(),
      .key = key,
      .secure = comm::secure_from(options.secure),
      .streams = options.streams,
      .provider = options.provider,
      .peer_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.peer_timeout)};
  port_ = std::make_unique<comm::MixedPort>(kinds, options.module, settings);
}

std::unique_ptr<comm::Module> DataPort::make_module(const std::string& machine, std::uint32_t self,
                                                    const std::vector<std::string>& endpoints,
                                                    const std::vector<std::string>& names) {
  return port_->join({.machine = machine, .self = self, .endpoints = endpoints, .names = names});
}

}  // namespace aplib::launch
