// SPDX-License-Identifier: MIT
#include "mpi/plain_window.hpp"

namespace aplib::mpi::plain {

[[gnu::cold]] void let_others_run() { this_task::yield(); }

}  // namespace aplib::mpi::plain
