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
#include "comm/module.hpp"
#include "launch/wire/status.hpp"

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

// ---- the module by which a process reaches each other process, for people ----

/// In machines of up to this many processes each pair is described. In larger ones, the processes that a module reaches
/// are listed together.
inline constexpr std::uint32_t described_processes_max = 4;

/// In the order of the first process that is reached. Any thread, while the module exists.
[[nodiscard]] std::vector<wire::Route> routes_of(const comm::Module& module, std::uint32_t self,
                                                 std::uint32_t processes);

}  // namespace aplib::launch::node
