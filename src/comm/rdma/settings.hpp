// SPDX-License-Identifier: MIT
// What an RdmaModule is made of.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/job_key.hpp"
#include "comm/module.hpp"
#include "comm/rdma/fabric.hpp"

namespace aplib::comm {

struct RdmaSettings {
  Peer self;
  std::shared_ptr<Fabric>
      fabric;  ///< Open: others know its name already. The module's alone; who holds on to it keeps it open.
  std::vector<std::vector<std::byte>> addresses;  ///< By process: their fabrics' names. Empty: not reached by us.
  JobKey key;
  std::string machine;
  Secure secure = Secure::auth;
  std::chrono::milliseconds peer_timeout{
      10'000};  ///< A process that takes nothing for so long, and never did, is lost.
  std::vector<std::string> names{};
};

}  // namespace aplib::comm
