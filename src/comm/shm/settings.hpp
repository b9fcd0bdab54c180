// SPDX-License-Identifier: MIT
// What an ShmModule is made of.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/job_key.hpp"
#include "comm/module.hpp"
#include "comm/shm/bell.hpp"
#include "comm/shm/descriptor.hpp"
#include "comm/shm/endpoint.hpp"

namespace aplib::comm::shm {

/// What a process has before it knows the others: where it is reached, and what it will give to them.
struct Presence {
  /// Listens. Throws Error.
  explicit Presence(const std::string& host);
  std::unique_ptr<Bell> bell = std::make_unique<Bell>();
  Endpoint own;
  Descriptor listener;
};

struct Settings {
  Peer self = 0;
  Presence presence;
  std::vector<std::string> endpoints;  ///< By process. Empty: no frame goes there by this module.
  std::vector<std::string> names;      ///< By process, for messages; may be shorter.
  JobKey key;
  std::string machine;
  Secure secure = Secure::auth;
  std::chrono::milliseconds peer_timeout{10'000};
};

}  // namespace aplib::comm::shm
