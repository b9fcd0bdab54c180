// SPDX-License-Identifier: MIT
// What a TcpModule is made of.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/job_key.hpp"
#include "comm/module.hpp"
#include "comm/tcp/listener.hpp"

namespace aplib::comm {

struct TcpSettings {
  Peer self;             ///< This process.
  TcpListener listener;  ///< Where it is reached.
  std::vector<std::string>
      endpoints;  ///< Of all processes, by number: "10.0.0.1:5103", "[::1]:5103". The own one is not used. Empty: not reached.
  JobKey key;
  std::string machine;  ///< Its id: the same for all, another for every other machine.
  Secure secure = Secure::auth;
  std::uint32_t streams = 0;  ///< Connections per pair, for large frames; 0: by round trip. Who connects decides.
  std::chrono::milliseconds peer_timeout{10'000};  ///< A host that acknowledges nothing for so long is lost.
  std::vector<std::string> names{};                ///< Of the processes, for messages: "ws1". May be shorter.
};

}  // namespace aplib::comm
