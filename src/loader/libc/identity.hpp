// SPDX-License-Identifier: MIT
// What the system knows a process by: its numbers. Each instance that asks has a pid that is nobody else's on the host.
#pragma once

#include <sys/types.h>

namespace aplib::loader {
class Instance;
}  // namespace aplib::loader

namespace aplib::loader::libc {

/// The instance's pid, which the first call makes. Call from: any flow of the instance.
pid_t pid_of(Instance& instance);

/// Calls use(instance) for the other instance of this process that has this pid. False: there is none, and `pid` is
/// the system's. That instance lives meanwhile; no code of a program may run, and no instance may end, in `use`.
bool with_instance(pid_t pid, void (*use)(Instance& instance, void* state), void* state);

/// `path` is the system's name of the caller's program file: "/proc/self/exe" and the like.
bool names_own_file(Instance& instance, const char* path);

}  // namespace aplib::loader::libc
