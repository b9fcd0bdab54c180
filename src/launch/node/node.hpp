// SPDX-License-Identifier: MIT
// Node: the process that carries a machine's cells on a host, from the key on its standard input to its end. "aprun
// --node ADDRESS:PORT,... --process N".
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
  std::chrono::nanoseconds timeout = std::chrono::seconds(10);  ///< Of the launcher's silence, as the launcher has it.
};

/// Reads the job's key from standard input, calls the launcher, and does as it says. Returns the process's exit
/// status: 0 when the launcher let it go, whatever became of the run. Says on standard error what the launcher
/// cannot know: that it could not be reached.
int run_node(const NodeCommand& command);

/// The same with a key that came another way; `watch_input`: the end of standard input means that the launcher has
/// gone.
int run_node(const NodeCommand& command, const comm::JobKey& key, bool watch_input);

}  // namespace aplib::launch::node
