// SPDX-License-Identifier: MIT
// Clusters on this computer that a test makes, and the processes of their machines.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "checks.hpp"
#include "process.hpp"

namespace aplib::test {

using Strings = std::vector<std::string>;

/// Writes a cluster file with `hosts` local hosts a, b, ... of `cells` cells each. Returns its path.
std::string local_cluster(const Folder& folder, unsigned hosts, unsigned cells, const std::string& machine = "",
                          const std::string& comm = "");

/// Runs aprun with a cluster file.
Ended aprun_cluster(const std::string& file, const Strings& arguments, Start start = {.arguments = {}});

/// The nodes that a launcher has started, by process number. Waits until there are that many.
std::vector<pid_t> nodes_of(pid_t launcher, std::size_t count);
std::vector<pid_t> children_of(pid_t parent);
/// Waits until a process has ended (or is a zombie that nobody waits for).
void wait_gone(pid_t process);

using testing_support::contains;

}  // namespace aplib::test
