// SPDX-License-Identifier: MIT
// What apctl can have of a run, for RegistryDoor.
#pragma once

#include <functional>
#include <string>

#include "aplib/options.hpp"
#include "launch/control/registry_door.hpp"

namespace aplib::launch {

class Coordinator;

/// For a machine of several processes. `coordinator` outlives the door.
[[nodiscard]] DoorActions door_actions(Coordinator& coordinator, const Options& options);

/// For a machine in this process alone: `program` with `grid`; `stop` ends the run with this status and text.
[[nodiscard]] DoorActions door_actions(const std::string& program, Grid grid,
                                       std::function<void(int status, const std::string& text)> stop);

}  // namespace aplib::launch
