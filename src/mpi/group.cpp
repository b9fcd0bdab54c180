// SPDX-License-Identifier: MIT
#include "mpi/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "mpi/error.hpp"
#include "mpi/rank.hpp"

namespace aplib::mpi {

Group::Group(Rank& rank, std::uint32_t first, std::uint32_t stride, std::uint32_t count)
    : Object(rank, kind), first_(first), stride_(stride), count_(count) {}

Group::Group(Rank& rank, std::vector<std::uint32_t> cells)
    : Object(rank, kind), count_(static_cast<std::uint32_t>(cells.size())) {
  if (cells.empty()) return;
  first_ = cells[0];
  if (count_ > 1 && cells[1] > cells[0]) stride_ = cells[1] - cells[0];
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (cells[i] != first_ + i * stride_) {
      cells_ = std::move(cells);
      order_by_cell();
      return;
    }
  }
}

void Group::order_by_cell() {
  ranks_by_cell_.resize(count_);
  std::iota(ranks_by_cell_.begin(), ranks_by_cell_.end(), 0U);
  std::ranges::sort(ranks_by_cell_, {}, [this](std::uint32_t rank) { return cells_[rank]; });
}

int Group::find_rank(std::uint32_t cell) const noexcept {
  if (cells_.empty()) {
    const std::uint32_t distance = cell - first_;  // wraps below first_, and is then too far
    return cell >= first_ && distance % stride_ == 0 && distance / stride_ < count_
               ? static_cast<int>(distance / stride_)
               : MPI_UNDEFINED;
  }
  const auto place =
      std::ranges::lower_bound(ranks_by_cell_, cell, {}, [this](std::uint32_t rank) { return cells_[rank]; });
  return place != ranks_by_cell_.end() && cells_[*place] == cell ? static_cast<int>(*place) : MPI_UNDEFINED;
}

int Group::own_rank() const noexcept { return rank_of(rank().world_rank()); }

int Group::compare(const Group& other) const noexcept {
  if (size() != other.size()) return MPI_UNEQUAL;
  int result = MPI_IDENT;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (cell(i) == other.cell(i)) continue;
    if (other.rank_of(cell(i)) == MPI_UNDEFINED) return MPI_UNEQUAL;
    result = MPI_SIMILAR;
  }
  return result;
}

MPI_Group new_group(Rank& rank, std::vector<std::uint32_t> cells) {
  return cells.empty() ? MPI_GROUP_EMPTY : handle_of<MPI_Group>(*new Group(rank, std::move(cells)));
}

Group& group_of(const Call& call, const char* parameter, MPI_Group handle) {
  if (handle == MPI_GROUP_EMPTY) return call.rank().empty_group();
  return object_of<Group>(MPI_ERR_GROUP, parameter, handle, "a group");
}

namespace {

/// The group's cells that `wanted` accepts, in the group's order, behind `cells`.
template <class Wanted>
void append(std::vector<std::uint32_t>& cells, const Group& group, Wanted wanted) {
  for (std::uint32_t i = 0; i < group.size(); ++i) {
    if (wanted(group.cell(i))) cells.push_back(group.cell(i));
  }
}

/// Ranks of a group that a program has listed: each is there, and only once.
class ListedRanks {
 public:
  explicit ListedRanks(const Group& group) : group_(group), is_listed_(group.size()) {}

  void add(std::int64_t rank) {
    if (rank < 0 || rank >= group_.size()) {
      fail(MPI_ERR_RANK, group_.size() == 0
                             ? fmt::format("rank {} is not in the group, which is empty", rank)
                             : fmt::format("rank {} is not in the group; it has ranks 0..{}", rank, group_.size() - 1));
    }
    const auto place = static_cast<std::uint32_t>(rank);
    if (is_listed_[place]) fail(MPI_ERR_RANK, fmt::format("rank {} is listed twice; list each rank once", rank));
    is_listed_[place] = true;
    cells_.push_back(group_.cell(place));
  }

  void add_range(const int (&range)[3]) {
    const auto [first, last, stride] = range;
    if (stride == 0) fail(MPI_ERR_ARG, fmt::format("the stride of the range {}..{} is 0", first, last));
    // Not empty: the first rank is checked even if the last one lies in the other direction.
    if (stride > 0 ? first > last : first < last) return;
    for (std::int64_t rank = first; stride > 0 ? rank <= last : rank >= last; rank += stride) add(rank);
  }

  /// As they were listed.
  std::vector<std::uint32_t> included() { return std::move(cells_); }
  /// All others, in the group's order.
  [[nodiscard]] std::vector<std::uint32_t> excluded() const {
    std::vector<std::uint32_t> others;
    for (std::uint32_t i = 0; i < group_.size(); ++i) {
      if (!is_listed_[i]) others.push_back(group_.cell(i));
    }
    return others;
  }

 private:
  const Group& group_;
  std::vector<bool> is_listed_;
  std::vector<std::uint32_t> cells_;
};

ListedRanks listed(const Group& group, int n, const int ranks[]) {
  ListedRanks list(group);
  for (int i = 0; i < n; ++i) list.add(ranks[i]);
  return list;
}

ListedRanks listed(const Group& group, int n, const int ranges[][3]) {
  ListedRanks list(group);
  for (int i = 0; i < n; ++i) list.add_range(ranges[i]);
  return list;
}

}  // namespace

void group_size(const Call&, Group& group, int* size) { *size = static_cast<int>(group.size()); }

void group_rank(const Call&, Group& group, int* rank) { *rank = group.own_rank(); }

void group_compare(const Call&, Group& group, Group& other, int* result) { *result = group.compare(other); }

void group_translate_ranks(const Call&, Group& from, int n, const int ranks[], Group& to, int translated[]) {
  for (int i = 0; i < n; ++i) {
    if (ranks[i] == MPI_PROC_NULL) {
      translated[i] = MPI_PROC_NULL;
      continue;
    }
    if (ranks[i] < 0 || static_cast<std::uint32_t>(ranks[i]) >= from.size()) {
      fail(MPI_ERR_RANK,
           fmt::format("rank {} is not in group1, which has {} ranks, counted from 0; give one of them or "
                       "MPI_PROC_NULL",
                       ranks[i], from.size()));
    }
    translated[i] = to.rank_of(from.cell(static_cast<std::uint32_t>(ranks[i])));
  }
}

void group_union(const Call& call, Group& group, Group& other, MPI_Group* place) {
  std::vector<std::uint32_t> cells;
  append(cells, group, [](std::uint32_t) { return true; });
  append(cells, other, [&](std::uint32_t cell) { return group.rank_of(cell) == MPI_UNDEFINED; });
  *place = new_group(call.rank(), std::move(cells));
}

void group_intersection(const Call& call, Group& group, Group& other, MPI_Group* place) {
  std::vector<std::uint32_t> cells;
  append(cells, group, [&](std::uint32_t cell) { return other.rank_of(cell) != MPI_UNDEFINED; });
  *place = new_group(call.rank(), std::move(cells));
}

void group_difference(const Call& call, Group& group, Group& other, MPI_Group* place) {
  std::vector<std::uint32_t> cells;
  append(cells, group, [&](std::uint32_t cell) { return other.rank_of(cell) == MPI_UNDEFINED; });
  *place = new_group(call.rank(), std::move(cells));
}

void group_incl(const Call& call, Group& group, int n, const int ranks[], MPI_Group* place) {
  *place = new_group(call.rank(), listed(group, n, ranks).included());
}

void group_excl(const Call& call, Group& group, int n, const int ranks[], MPI_Group* place) {
  *place = new_group(call.rank(), listed(group, n, ranks).excluded());
}

void group_range_incl(const Call& call, Group& group, int n, int ranges[][3], MPI_Group* place) {
  *place = new_group(call.rank(), listed(group, n, ranges).included());
}

void group_range_excl(const Call& call, Group& group, int n, int ranges[][3], MPI_Group* place) {
  *place = new_group(call.rank(), listed(group, n, ranges).excluded());
}

void group_free(const Call& call, MPI_Group* place) {
  Group& group = group_of(call, "group", *place);
  if (!is_predefined(*place)) group.release();
  *place = MPI_GROUP_NULL;
}

}  // namespace aplib::mpi
