// SPDX-License-Identifier: MIT
// RegistryDoor: answers apctl in a running aprun. It costs one sleeping thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "launch/ctl/registry.hpp"

namespace aplib::launch::coordinator {
class Coordinator;
}

namespace aplib::launch::ctl {

/// Takes a reply, from any thread, once; also after apctl has stopped waiting.
using ReplyTaker = std::function<void(Reply)>;

/// Carries out a verb of apctl. `words` are the request's, with the verb first. Called on the door's thread, one at a
/// time, and not after the door's destructor. It must not wait for the machine: it may throw Error, reply later, or
/// never reply if the machine ends.
using Verb = std::function<void(const std::vector<std::string>& words, ReplyTaker reply)>;
using Verbs = std::map<std::string, Verb>;

class RegistryDoor {
 public:
  /// Opens the socket of this process in this user's folder, and begins to answer. A failure is not an error of the
  /// run: see problem().
  explicit RegistryDoor(Verbs verbs);
  /// Removes the socket. Drops a request under way. Leaves set_end() in a file, if somebody has asked for it.
  ~RegistryDoor();
  RegistryDoor(const RegistryDoor&) = delete;
  RegistryDoor& operator=(const RegistryDoor&) = delete;

  /// Why apctl cannot see this machine; empty: it can.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  /// How the machine has ended.
  void set_end(int status, const std::string& reason);

 private:
  struct Impl;
  std::string problem_;
  std::unique_ptr<Impl> impl_;
};

/// The verbs of a machine of several processes. `coordinator` outlives the door. A new verb is a row here and a command
/// of apctl.
[[nodiscard]] Verbs machine_verbs(coordinator::Coordinator& coordinator, const Options& options);

/// The verbs of a machine in this process alone: `program` with `grid`. `polls`: describe_waits(). `stop` ends the run
/// with this status and text.
[[nodiscard]] Verbs machine_verbs(const std::string& program, Grid grid, std::function<std::string()> polls,
                                  std::function<void(int status, const std::string& text)> stop);

/// The first task id of loaded programs for which apctl names none.
inline constexpr std::uint32_t first_loaded_task = 1000;
/// Starts a further program on all cells as this task. `file` is an absolute path on this computer; arguments[0] is
/// the program's name.
using Loader = std::function<void(const std::string& file, std::uint32_t task,
                                  const std::vector<std::string>& arguments, const ReplyTaker& reply)>;
/// load FILE TASK ARGUMENTS...; TASK may be "auto". The content of the reply is the task's number.
[[nodiscard]] Verb load_verb(Loader load);

}  // namespace aplib::launch::ctl
