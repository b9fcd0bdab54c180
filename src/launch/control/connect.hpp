// SPDX-License-Identifier: MIT
// The node's way to its launcher.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launch/control/connection.hpp"

namespace aplib::launch {

/// Connects to the first of `endpoints` ("10.0.0.1:5100", "[fe80::1]:5100") that answers as the launcher does; goes on trying for `patience`. `made` gets the connection, on
/// the loop's thread; what to listen for it then says itself. `failed` gets the reason, one for each endpoint, when there is no hope left.
struct Connecting {
  std::vector<std::string> endpoints{};
  std::chrono::nanoseconds patience = std::chrono::seconds(20);
  std::function<void(std::shared_ptr<Connection> connection)> made{};
  std::function<void(const std::string& why)> failed{};
};
void connect_to_launcher(EventLoop& loop, const ConnectionSettings& settings, Connecting what);

}  // namespace aplib::launch
