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
  std::chrono::nanoseconds timeout = std::chrono::seconds(10);  ///< Of the launcher's silence, as the launcher has it.
};

/// Reads the job's key from standard input, calls the launcher, and does as it says. Returns the process's exit
/// status: 0 when the launcher let it go, whatever became of the run. Says on standard error what the launcher
/// cannot know: that it could not be reached.
int run_node(const NodeCommand& command);

/// The same with a key that came another way; `watch_input`: the end of standard input means that the launcher has
/// gone.
int run_node(const NodeCommand& command, const comm::JobKey& key, bool watch_input);

// ---- by which module a process reaches which others, for people ----

/// In machines of so many processes each pair is described; in larger ones those that a module reaches are counted up.
inline constexpr std::uint32_t described_processes_max = 4;

/// In the order of the first process that is reached. Any thread, as long as the module is there.
[[nodiscard]] std::vector<wire::Route> routes_of(const comm::Module& module, std::uint32_t self,
                                                 std::uint32_t processes);

}  // namespace aplib::launch::node
