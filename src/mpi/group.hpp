// SPDX-License-Identifier: MIT
// Group: ranks of MPI_COMM_WORLD (cells) in an order. Most groups are the whole machine, one of its rows or a part of
// it: cells at equal distances, which need no table, so that a thousand cells can each have a thousand groups.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mpi/object.hpp"

namespace aplib::mpi {

struct Group : Object {
  static constexpr ObjectKind kind = ObjectKind::group;

  /// `cells`: different ones.
  Group(Rank& rank, std::vector<std::uint32_t> cells);
  /// first, first + stride, ...
  Group(Rank& rank, std::uint32_t first, std::uint32_t stride, std::uint32_t count);

  [[nodiscard]] std::uint32_t size() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t cell(std::uint32_t rank) const noexcept {
    return cells_.empty() ? first_ + rank * stride_ : cells_[rank];
  }
  /// MPI_UNDEFINED: the cell is not in the group.
  [[nodiscard]] int rank_of(std::uint32_t cell) const noexcept {
    const std::uint32_t distance = cell - first_;
    return stride_ == 1 && distance < count_ && cells_.empty() ? static_cast<int>(distance) : find_rank(cell);
  }
  /// Of the calling cell.
  [[nodiscard]] int own_rank() const noexcept;
  /// MPI_IDENT, MPI_SIMILAR or MPI_UNEQUAL.
  [[nodiscard]] int compare(const Group& other) const noexcept;

 private:
  void order_by_cell();
  [[nodiscard]] int find_rank(std::uint32_t cell) const noexcept;

  std::uint32_t first_ = 0;
  std::uint32_t stride_ = 1;
  std::uint32_t count_ = 0;
  std::vector<std::uint32_t> cells_;          // empty: at equal distances
  std::vector<std::uint32_t> ranks_by_cell_;  // of cells_, ordered by the cell
};

/// The program's handle of a new group: MPI_GROUP_EMPTY if it has no cells.
MPI_Group new_group(Rank& rank, std::vector<std::uint32_t> cells);

Group& group_of(const Call& call, const char* parameter, MPI_Group handle);

}  // namespace aplib::mpi
