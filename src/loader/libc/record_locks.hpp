// SPDX-License-Identifier: MIT
// Record locks of an instance: what closing a descriptor means for them.
#pragma once

namespace aplib::loader {

class Instance;

namespace libc {

/// To be called before an instance closes `descriptor`: as POSIX has it, that gives up all its record locks on the file, whichever descriptor they were made by. Costs a
/// comparison for programs that lock nothing. Keeps errno. Call from: a flow of the instance.
void give_up_record_locks(Instance& instance, int descriptor) noexcept;

}  // namespace libc
}  // namespace aplib::loader
