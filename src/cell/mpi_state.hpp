// SPDX-License-Identifier: MIT
// MpiState: what MPI (src/mpi) keeps of a cell, which knows nothing of it, and does when a task leaves its memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "aplib/export.hpp"

namespace aplib {

namespace detail {
/// `rank`: MpiState::rank of the task's cell. Others may read what the rank has shown them: not any more on return.
using LeaveMemory = void (*)(void* rank, std::uint32_t task) noexcept;
/// For a task that leaves its memory for good. Null: there is nothing.
APLIB_API extern constinit std::atomic<LeaveMemory> leave_memory;
}  // namespace detail

struct MatchWish;

/// Made at the cell's first call, and freed with the cell.
struct MpiState {
  void* rank = nullptr;
  void (*free_rank)(void* rank) = nullptr;
  /// What a wish for messages of MPI means, for reports: "rank 1 of MPI_COMM_WORLD, tag 7"; empty: it does not know.
  std::string (*describe_wish)(const void* rank, const MatchWish& wish) = nullptr;

  MpiState() = default;
  ~MpiState() {
    if (rank != nullptr) free_rank(rank);
  }
  MpiState(const MpiState&) = delete;
  MpiState& operator=(const MpiState&) = delete;
};

}  // namespace aplib
