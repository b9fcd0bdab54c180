// SPDX-License-Identifier: MIT
// RegistryDoor: where a running aprun answers apctl. Costs a running machine nothing: one thread that sleeps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "launch/ctl/registry.hpp"

namespace aplib::launch::coordinator {
class Coordinator;
}

namespace aplib::launch::ctl {

/// What came of a request: lines for apctl, or a problem in words.
struct DoorAnswer {
  std::string lines;
  std::string problem;
};
/// Takes an answer, from any thread, once; also when nobody waits for it any more.
using DoorReply = std::function<void(DoorAnswer)>;

/// What the machine can do. Called on the door's thread, one at a time, not after the door's destructor. They must not wait for the machine: they may throw Error, or answer later, or never, when the machine ends.
/// An empty function: this machine cannot do that.
struct DoorActions {
  std::function<void(DoorReply)> status;  ///< status_lines().
  std::function<void(DoorReply)> tasks;   ///< A line for each task, as people read it.
  /// Starts a further program on all cells as this task. `file` is an absolute path on this computer; arguments[0] is the program's name.
  std::function<void(const std::string& file, std::uint32_t task, const std::vector<std::string>& arguments, DoorReply)>
      load;
  /// Ends the run, as Ctrl-C does; returns at once.
  std::function<void()> stop;
};

class RegistryDoor {
 public:
  /// Tasks of loaded programs that apctl names none for have these numbers and higher.
  static constexpr std::uint32_t first_task = 1000;

  /// Opens the socket of this process in the folder of this user, and begins to answer. What prevents it is no error of the run: see problem().
  explicit RegistryDoor(DoorActions actions);
  /// Closes: nobody finds it any more. A request under way is dropped.
  ~RegistryDoor();
  RegistryDoor(const RegistryDoor&) = delete;
  RegistryDoor& operator=(const RegistryDoor&) = delete;

  /// Why apctl cannot see this machine; empty: it can.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

 private:
  struct State;
  std::string problem_;
  std::unique_ptr<State> state_;
};

/// For a machine of several processes. `coordinator` outlives the door.
[[nodiscard]] DoorActions door_actions(coordinator::Coordinator& coordinator, const Options& options);

/// For a machine in this process alone: `program` with `grid`; `stop` ends the run with this status and text.
[[nodiscard]] DoorActions door_actions(const std::string& program, Grid grid,
                                       std::function<void(int status, const std::string& text)> stop);

}  // namespace aplib::launch::ctl
