// SPDX-License-Identifier: MIT
// MpiState: what MPI (src/mpi) keeps of a cell, which knows nothing of it.
#pragma once

#include <string>

namespace aplib {

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
