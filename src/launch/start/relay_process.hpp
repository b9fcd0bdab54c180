// SPDX-License-Identifier: MIT
// RelayProcess: an aprelay that serves one job, on this computer or, by ssh, on a gateway, and the lines to and from it
// (relay/session.hpp has them). It ends with its standard input, so it outlives neither the launcher nor ssh.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/wire/event_loop.hpp"

namespace aplib::launch::start {

/// Thread safety: none; the loop's thread.
class RelayProcess {
 public:
  struct Events {
    /// It listens at these endpoints.
    std::function<void(std::vector<std::string> endpoints)> ready;
    /// A line of it, without "aprelay ".
    std::function<void(const std::string& line)> said;
    /// It has ended, or could not be started. Once. `why`: for people.
    std::function<void(const std::string& why)> ended;
  };

  /// Begins. Throws Error(failed) if the command cannot be executed here.
  RelayProcess(wire::EventLoop& loop, const std::vector<std::string>& command, Events events);
  /// Ends it. No event comes any more.
  ~RelayProcess();
  RelayProcess(const RelayProcess&) = delete;
  RelayProcess& operator=(const RelayProcess&) = delete;

  /// A line, without its end.
  void tell(const std::string& line);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::launch::start
