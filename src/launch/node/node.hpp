// SPDX-License-Identifier: MIT
// Node: the process that carries a machine's cells on a host, from the key on its standard input to its end. "aprun
// --node ADDRESS:PORT,... --process N". Or it keeps an ordinary process, which is a cell.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/job_key.hpp"

namespace aplib::launch::node {

struct NodeCommand {
  std::vector<std::string> endpoints{};  ///< Where the launcher listens.
  std::uint32_t process = 0;
  comm::Secure secure = comm::Secure::auth;
  std::chrono::nanoseconds timeout =
      std::chrono::seconds(10);  ///< The longest silence of the launcher, as the launcher sets it.
};

/// Reads the job's key from standard input, calls the launcher, and follows its messages. Returns the process's exit
/// status: 0 if the launcher let it go, however the run ended. Writes to standard error what the launcher cannot know:
/// that it could not be reached.
int run_node(const NodeCommand& command);

/// The same with a key that came another way. `watch_input`: the end of standard input means that the launcher is gone.
int run_node(const NodeCommand& command, const comm::JobKey& key, bool watch_input);

}  // namespace aplib::launch::node
