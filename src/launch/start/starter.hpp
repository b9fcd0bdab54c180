// SPDX-License-Identifier: MIT
// Starter: gets a command to run on another host, by ssh, a batch system, or whatever the cluster file says. What
// runs is `aprun --node ...`; it reads one line from its standard input (the job's key: never on a command line,
// never in an environment) and calls the launcher back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/cluster/cluster.hpp"

namespace aplib::launch::start {

/// A process to start.
struct NodeStart {
  std::uint32_t process = 0;         ///< Its number in the machine.
  cluster::ClusterHost host;         ///< Where and how.
  std::vector<std::string> command;  ///< argv there, [0] is a path on that host.
  std::string input;                 ///< For its standard input, which stays open after it until the Starter ends.
};

/// What a starter tells. Called from one thread of the starter's, not after its destructor; while that runs, only
/// said().
struct StartEvents {
  /// The process could not be started, or the way to it broke: one whole message that says which of the two failed,
  /// ssh (or srun, ...) or the program, and what to do. At most once per process.
  std::function<void(std::uint32_t process, const std::string& text)> failed;
  /// It ran and has ended: exit status, or 128 + signal; what it wrote on stderr last, at most some lines.
  std::function<void(std::uint32_t process, int status, const std::string& last_words)> ended;
  /// A line that it wrote to stdout or stderr (without the end of line) while it runs, or that the way to it (ssh,
  /// srun, ...) wrote.
  std::function<void(std::uint32_t process, const std::string& line)> said;
};

class Starter {
 public:
  /// Ends what still runs: closes the standard inputs (nodes end then), waits a moment, then kills. Leaves no
  /// process behind.
  virtual ~Starter() = default;
  /// Begins to start all of them (ssh: at most 8 at a time, with retries); returns at once. Once.
  virtual void start(std::vector<NodeStart> nodes, StartEvents events) = 0;
  /// The node has called back: its start is through (ssh: the next may begin). Any thread.
  virtual void arrived(std::uint32_t process) = 0;
};

/// One that handles every kind of host, several in one machine, too. LaunchKind::pmix is not started by us and is
/// an error of start(). `ssh`: the ssh command with options, as people write it: "ssh -p 2222 -F my_config"; throws
/// Error(bad_option) when it is none. Where a host's folder is given, the program runs there; else in the
/// launcher's own folder if the host has it.
[[nodiscard]] std::unique_ptr<Starter> make_starter(const std::string& ssh = "ssh");

}  // namespace aplib::launch::start
