// SPDX-License-Identifier: MIT
// Node: the process that carries a machine's cells on a host, from the key on its standard input to its end. "aprun
// --node stdio --process N", or "--node ADDRESS:PORT,...". Or it keeps an ordinary process, which is a cell.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/job_key.hpp"

namespace aplib::launch::node {

struct NodeCommand {
  std::vector<std::string> endpoints{};  ///< Where the launcher listens; none: it is at our standard streams.
  bool kept = false;                     ///< A keeper has started us: nobody greets at the standard streams.
  std::uint32_t process = 0;
  comm::Secure secure = comm::Secure::auth;
  std::chrono::nanoseconds timeout =
      std::chrono::seconds(10);  ///< The longest silence of the launcher, as the launcher sets it.
};

/// Reads the job's key from standard input, calls or greets the launcher, and follows its messages. Returns the
/// process's exit status: 0 if the launcher let it go, however the run ended. Writes to standard error what the
/// launcher cannot know: that it could not be reached. If the launcher is at the standard streams, others take their
/// place: /dev/null, and standard error for what anybody prints.
int run_node(const NodeCommand& command);

/// The same with a key that came another way. The launcher listens.
int run_node(const NodeCommand& command, const comm::JobKey& key);

}  // namespace aplib::launch::node
