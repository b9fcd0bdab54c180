// SPDX-License-Identifier: MIT
// "aprun -f cluster.toml": a run on the hosts of a cluster file, from the command line to the exit status.
#pragma once

#include "launch/command_line.hpp"

namespace aplib::launch {

/// Runs what `line` says; returns the exit status. Throws Error when nothing can be started for a reason that shows
/// here already.
int run_cluster(const CommandLine& line);

}  // namespace aplib::launch
