// SPDX-License-Identifier: MIT
// DataPort: where a node is reached for frames of the others, by every module that the options allow and this host has, and what becomes of it once all addresses are known: a module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "comm/job_key.hpp"
#include "comm/kinds.hpp"
#include "comm/mixed/mixed_port.hpp"

namespace aplib::launch {

class DataPort {
 public:
  /// Listens on `address`, on a port that the options allow. Throws Error.
  DataPort(const Options& options, const std::string& address, const comm::JobKey& key);

  /// For the others: "shm=4f1c;tcp=10.0.0.1:5100".
  [[nodiscard]] std::string endpoint() const { return port_->endpoint(); }
  /// The module of process `self`; `endpoints`: of all, by process. It is gone before the port is. Once. Throws Error.
  [[nodiscard]] std::unique_ptr<comm::Module> make_module(const std::string& machine, std::uint32_t self,
                                                          const std::vector<std::string>& endpoints,
                                                          const std::vector<std::string>& names);
  /// Modules that could not be used, and why.
  [[nodiscard]] const std::vector<comm::MixedPort::LeftOut>& left_out() const { return port_->left_out(); }

 private:
  std::vector<comm::FoundModule> found_;
  std::unique_ptr<comm::MixedPort> port_;
};

}  // namespace aplib::launch
