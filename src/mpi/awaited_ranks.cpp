// SPDX-License-Identifier: MIT
#include "mpi/awaited_ranks.hpp"

namespace aplib::mpi {

bool AwaitedRanks::needs(std::uint32_t cell) const noexcept {
  ended_ = comm_.rank_of(CellId{cell});
  return ended_ != MPI_UNDEFINED && is_missing(ended_);
}

std::string AwaitedRanks::missing() const {
  return describe_ranks(comm_, [this](int rank) { return is_missing(rank); });
}

}  // namespace aplib::mpi
