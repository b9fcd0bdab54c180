// SPDX-License-Identifier: MIT
// This computer and this process, as a node sees them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/wire/start_messages.hpp"

namespace aplib::launch {

/// Host, host_id, pid and cpus.
[[nodiscard]] wire::Hello describe_this_host();

/// Equal for two processes exactly when they are on one host as modules see it: they have the same kernel, shared
/// memory and network. The network counts, for who separates the networks of two containers wants two hosts. The
/// cluster file does not: two of its hosts that are one computer may use its memory.
[[nodiscard]] std::string shared_memory_domain();

/// The calling thread, and those it starts, run on these CPUs alone. Empty: no change. What the system refuses is
/// left as it is.
void keep_to_cpus(const std::vector<std::uint32_t>& cpus);

/// With an unlimited stack (`ulimit -s unlimited`) the system maps libraries, and what comes later, in the middle of
/// the address space, where the cells' slots are. It decides that when a program is executed: this one executes itself
/// again, with an ordinary limit, and gives itself its own back. First thing in main(); it returns when all is well, or
/// when nothing can be done.
void keep_slots_free(char* const* argv) noexcept;

/// Raises the limit of open files as far as the system allows. All cells' files are one process's, and what a program
/// leaves open stays open; the usual limit is meant for one program.
void allow_many_files();

}  // namespace aplib::launch
