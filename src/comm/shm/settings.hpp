// SPDX-License-Identifier: MIT
// What an ShmModule is made of.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/job_key.hpp"
#include "comm/module.hpp"
#include "comm/shm/descriptor.hpp"
#include "comm/shm/endpoint.hpp"

namespace aplib::comm::shm {

struct Settings {
  Peer self = 0;
  Endpoint own;
  Descriptor listener;
  std::vector<std::string> endpoints;  ///< By process. Empty: no frame goes there by this module.
  std::vector<std::string> names;      ///< By process, for messages; may be shorter.
  JobKey key;
  std::string machine;
  Secure secure = Secure::auth;
  std::chrono::milliseconds peer_timeout{10'000};
};

}  // namespace aplib::comm::shm
