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

/// Equal for two processes exactly when modules see them on one host: they have the same kernel, shared memory and
/// network. The network counts, because whoever separates the networks of two containers wants two hosts. The cluster
/// file does not count: two of its hosts that are one computer may use its memory.
[[nodiscard]] std::string shared_memory_domain();

/// Makes the calling thread, and those that it starts, run only on these CPUs. Empty: no change. If the system refuses,
/// nothing changes.
void keep_to_cpus(const std::vector<std::uint32_t>& cpus);

/// The cells of this process share its CPUs also where a library makes threads of its own: OMP_NUM_THREADS tells
/// OpenMP, and most BLAS, how many CPUs there are for each. Who has set it decides that alone. A single cell has all.
void share_cpus(std::uint32_t cells);

/// Whether a region of OpenMP has several threads: not with OMP_NUM_THREADS=1. Call it before share_cpus(): that one
/// only proposes a number, and programs that name another one get it.
[[nodiscard]] bool has_openmp_threads() noexcept;

enum class Heap {
  of_cells,    ///< What one cell gave back to the system would cost all of them.
  of_process,  ///< As any other process has it: large pages cost one that is alone 8 MiB, and more than half its start.
};

/// Sees to what the system and libc decide when a program is executed: this program executes itself again with other
/// settings, and then restores the user's. Call it early in main().
///
/// - With an unlimited stack (`ulimit -s unlimited`), the system would map libraries, and what comes later, in the
///   middle of the address space, where the cells' slots are.
/// - libc's heap shall keep what programs free, and have large pages, where `heap` is that of many cells. Whoever sets
///   `glibc.malloc.` something in GLIBC_TUNABLES decides that alone.
/// - Fences of all threads, in this process and on this host, are asked for while there is only one thread.
void settle(char* const* argv, Heap heap) noexcept;
/// Sees to it beforehand, in a process that is about to execute aprun, which then does not execute itself again.
void settle_beforehand(Heap heap) noexcept;

/// The stacks of programs are as large as `ulimit -s` says where it says more than they usually are (`unlimited`: as
/// large as they may be), unless APLIB_PROGRAM_STACK is set, or address space is limited. Call it before options are
/// read from the environment. A process that settle() has executed again has what the first one has found.
void take_stack_limit() noexcept;

/// Raises the limit of open files as far as the system allows. The files of all cells belong to one process, and what a
/// program leaves open stays open, but the usual limit is meant for one program.
void allow_many_files();

}  // namespace aplib::launch
