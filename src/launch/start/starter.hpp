// SPDX-License-Identifier: MIT
// Starter: runs a command on other hosts, by ssh, a batch system, or as the cluster file says. The command is `aprun
// --node ...`. It reads the job's key as one line from its standard input, because others can read command lines and
// environments. Then it greets the launcher on its standard output, or calls it back (cluster::speaks_by_streams()).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/cluster/cluster.hpp"

namespace aplib::launch::start {

/// A process to start.
struct NodeStart {
  std::uint32_t process = 0;         ///< Its number in the machine.
  cluster::ClusterHost host;         ///< Where and how.
  std::vector<std::string> command;  ///< argv there, [0] is a path on that host.
  std::string input;                 ///< Written to its standard input, which then stays open until the Starter ends.
  std::uint64_t token = 0;           ///< By which lanes join it (pool/knock.hpp), if a keeper starts it. 0: none do.
  bool leaves_some = false;          ///< What the local command has started may outlive it, as an ssh that stands.
};

/// A process that has begun to greet (comm/greeting.hpp) on its standard output. What login shells wrote there before
/// counts as its words.
struct Contact {
  std::uint32_t process = 0;
  os::Ends ends{};     ///< Of its standard output and input, for the launcher to speak on and to close.
  std::string came{};  ///< The beginning of its greeting.
  bool kept = false;   ///< A keeper starts it: it does not greet, and may be spoken to already.
};

/// A starter's events, on its own thread. While its destructor runs it calls only said(), and afterwards nothing.
struct StartEvents {
  /// The process could not be started, or ssh (or srun, ...) to it broke. The text is a whole message that says which
  /// of the two failed, and what to do. At most once per process.
  std::function<void(std::uint32_t process, const std::string& text)> failed;
  /// The process ran and has ended, with an exit status or 128 + signal. `last_words` are its last lines on stderr.
  std::function<void(std::uint32_t process, int status, const std::string& last_words)> ended;
  /// A line, without its end, that the process or ssh (srun, ...) wrote to stdout or stderr while it runs.
  std::function<void(std::uint32_t process, const std::string& line)> said;
  /// At most once per process, and only of those that speak by their streams. Those that keepers start may not be there
  /// yet.
  std::function<void(Contact contact)> greets;
};

class Starter {
 public:
  /// Ends what still runs: closes the standard inputs, which ends nodes, waits a moment, then kills. No process
  /// remains.
  virtual ~Starter() = default;
  /// Begins to start all processes and returns at once. By ssh it starts at most 8 at a time, with retries. Call it
  /// once. Throws Error if it cannot begin.
  virtual void start(std::vector<NodeStart> nodes, StartEvents events) = 0;
  /// The node is there. Its start is complete, so the next one by ssh may begin. Any thread.
  virtual void arrived(std::uint32_t process) = 0;
  /// All is over, and the user waits for nothing more: nodes that keepers have started are left to those, which see to
  /// their end. Any thread.
  virtual void leave_to_keepers() {}
};

/// A starter for hosts of all kinds, also several kinds in one machine. LaunchKind::pmix is an error of start(),
/// because another launcher starts those. `ssh` is the ssh command with options, as people write it: "ssh -p 2222 -F
/// my_config". Throws Error(bad_option) if it is invalid. A program runs in its host's folder, or else in the
/// launcher's own folder if the host has it.
[[nodiscard]] std::unique_ptr<Starter> make_starter(const std::string& ssh = "ssh");

}  // namespace aplib::launch::start
