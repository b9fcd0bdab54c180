// SPDX-License-Identifier: MIT
#include "mpi/plain_window.hpp"

#include "aplib/task.hpp"

namespace aplib::mpi::plain {

void yield() { this_task::yield(); }

}  // namespace aplib::mpi::plain
