// SPDX-License-Identifier: MIT
// What each rank of a communicator has, told to all others, in a collective call of its own; and how all fail if one
// does.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "mpi/meeting.hpp"

namespace aplib::mpi {

/// What the ranks have, by rank, in an episode of the meeting.
template <class T>
std::vector<T> tell_all(Meeting& meeting, int size, const T& own) {
  static_assert(std::is_trivially_copyable_v<T> && Meeting::is_small(sizeof(T)));
  std::vector<T> all(static_cast<std::size_t>(size));
  meeting.show(bytes_at(&own, sizeof own));
  meeting.arrive_and_wait();
  for (int i = 0; i < size; ++i) {
    const Elements shown = meeting.shown_by(i);
    if (shown.bytes() != sizeof(T)) fail_bytes(i, shown.bytes(), sizeof(T));  // it is in another call
    std::memcpy(&all[static_cast<std::size_t>(i)], shown.contiguous(), sizeof(T));
  }
  return all;
}

/// The same of a whole call, also where the ranks have no board: at what processes of
/// a host share, or by messages, in log2 steps.
template <class T>
std::vector<T> tell_all(const Collective& collective, const T& own) {
  const int size = collective.size();
  if (Board* const board = collective.board()) {
    Meeting meeting(collective, *board);
    return tell_all(meeting, size, own);
  }
  if (HostBoard* const board = collective.host_board(); board != nullptr && HostBoard::holds(sizeof(T))) {
    std::vector<T> all(static_cast<std::size_t>(size));
    board->meet(collective, bytes_at(&own, sizeof own));
    for (int i = 0; i < size; ++i) board->take(i, bytes_at(&all[static_cast<std::size_t>(i)], sizeof(T)));
    return all;
  }
  std::vector<T> all(static_cast<std::size_t>(size), own);  // in order from the caller on, while it grows
  for (int have = 1; have < size; have *= 2) {
    const auto bytes = static_cast<Count>(sizeof(T)) * std::min(have, size - have);
    collective.exchange(collective.behind(have), bytes_in(all.data(), bytes), collective.before(have),
                        bytes_in(all.data() + have, bytes));
  }
  std::rotate(all.begin(), all.end() - collective.rank(), all.end());
  return all;
}

/// `codes`: of all ranks, MPI_SUCCESS where there is no failure. Fails if there is one: with the caller's own, else
/// with that of the first rank that has one.
void fail_together(const Call& call, Comm& comm, CollectiveKind kind, const std::vector<int>& codes,
                   const std::optional<Failure>& own);

/// All fail if one has failed. Returns when all have come.
void agree(const Call& call, Comm& comm, CollectiveKind kind, const std::optional<Failure>& own);

/// What the work fails by, if it does.
template <class Work>
std::optional<Failure> attempt(const Work& work) {
  try {
    work();
  } catch (...) {
    const std::unique_ptr<Failure> failure(caught());
    return std::move(*failure);
  }
  return std::nullopt;
}

/// Does what may fail at this rank alone; then as agree().
template <class Work>
void together(const Call& call, Comm& comm, CollectiveKind kind, const Work& work) {
  agree(call, comm, kind, attempt(work));
}

/// Fails, alike at all, unless all ranks have given the same.
template <class T>
void check_same(const Call& call, Comm& comm, CollectiveKind kind, const char* what, const T& own) {
  const auto all = tell_all(Collective(call, comm, kind), own);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0])
      fail(MPI_ERR_NOT_SAME,
           fmt::format("rank {} gives another {} than rank 0; let all ranks give the same", rank, what));
  }
}

}  // namespace aplib::mpi
