// SPDX-License-Identifier: MIT
// What MPI (src/mpi), of which the core knows nothing, does when a task leaves its memory for good.
#pragma once

#include <atomic>
#include <cstdint>

#include "aplib/export.hpp"

namespace aplib::detail {

/// `rank`: MpiState::rank of the task's cell. Others may read what the rank has shown them: not any more on return.
using LeaveMemory = void (*)(void* rank, std::uint32_t task) noexcept;
/// Null: there is nothing.
APLIB_API extern constinit std::atomic<LeaveMemory> leave_memory;

}  // namespace aplib::detail
