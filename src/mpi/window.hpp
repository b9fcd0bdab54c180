// SPDX-License-Identifier: MIT
// Win: a window, as one of its ranks sees it: memory that the ranks of a communicator open for each other, and what of
// the others' this rank may reach now.
//
// Ranks of one process reach each other's memory as their own. So a call has done all that it asks for when it returns,
// and what synchronises ranks only waits for them: by conditions, and for fences by a barrier. Ranks of other processes
// are reached by errands (remote_window.hpp).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock_reads.hpp"
#include "mpi/attribute.hpp"
#include "mpi/awaited_ranks.hpp"
#include "mpi/comm.hpp"
#include "mpi/error.hpp"
#include "mpi/rank.hpp"
#include "mpi/window_board.hpp"

namespace aplib::mpi {

struct Win : ErrorTarget {
  static constexpr ObjectKind kind = ObjectKind::win;

  /// What lets the rank reach others.
  enum class Access : std::uint8_t {
    none,
    fence,     ///< All, until the next fence.
    start,     ///< A group.
    lock,      ///< Those that it has locked.
    lock_all,  ///< All.
  };
  enum class Reach : std::uint8_t {
    none,
    started,
    locked,
    unchecked,  ///< The program has promised that nobody else locks: MPI_MODE_NOCHECK.
  };

  /// `ranks`: of the same ranks as the program's communicator, for the window alone. Both are held.
  Win(Comm& ranks, WindowBoardPtr shared, int flavor);
  ~Win() override;

  [[nodiscard]] int size() const noexcept { return comm->size(); }
  [[nodiscard]] int rank() const noexcept { return comm->rank(); }
  [[nodiscard]] Rank& owner() const noexcept { return Object::rank(); }
  [[nodiscard]] WindowBoard::Member& member(int rank) const noexcept { return board->member(rank); }
  [[nodiscard]] WindowBoard::Member& own() const noexcept { return member(rank()); }
  [[nodiscard]] bool is_dynamic() const noexcept { return flavor == MPI_WIN_FLAVOR_DYNAMIC; }
  /// For messages.
  [[nodiscard]] std::string title() const override { return name.empty() ? comm->title() : name; }

  [[nodiscard]] Reach reach_of(int rank) const noexcept { return reached[static_cast<std::size_t>(rank)]; }
  void set_reach(int rank, Reach reach) noexcept;
  /// The rank's memory may be read and written now.
  [[nodiscard]] bool reaches(int rank) const noexcept { return reaches_all || reach_of(rank) != Reach::none; }
  [[nodiscard]] bool is_passive() const noexcept { return access == Access::lock || access == Access::lock_all; }
  void begin_access(Access begun) noexcept {
    access = begun;
    reaches_all = begun == Access::fence || begun == Access::lock_all;
    is_used = false;
  }

  Comm* comm;
  WindowBoardPtr board;
  std::string name;
  Attributes attributes;
  std::vector<std::pair<std::string, std::string>> hints;  ///< Those of the standard that the program has given.
  // Values of predefined attributes.
  int flavor;
  int unit = 1;
  MPI_Aint bytes = 0;

  Access access = Access::none;
  bool reaches_all = false;
  bool is_used = false;         ///< There were calls in this epoch.
  std::vector<Reach> reached;   ///< By rank.
  int reached_count = 0;        ///< That are not none.
  bool is_unchecked = false;    ///< MPI_Win_lock_all has locked nobody: MPI_MODE_NOCHECK.
  bool is_exposed = false;      ///< By MPI_Win_post.
  std::vector<int> exposed_to;  ///< To these ranks.
  std::vector<int> started;     ///< Ranks that MPI_Win_start has named.
  /// Processes that may not have all that was put there, and how many puts that were.
  std::map<std::uint32_t, std::uint64_t> unflushed;
  ClockReads looks;  ///< At what others may have done.
};

Win& win_of(const Call& call, const char* parameter, MPI_Win handle);

/// Fails unless it is a rank of the window.
void check_window_rank(const char* parameter, const Win& win, int rank);

/// What a rank of a window waits for others to do.
class AwaitedInWindow : public AwaitedRanks {
 public:
  explicit AwaitedInWindow(const Win& win) noexcept : AwaitedRanks(*win.comm), win_(win) {}

  void let_go() noexcept final {}  // nobody looks at this task's memory

  /// Waits. `without`: what a rank that has ended has not done.
  void wait(const Call& call, const char* without);

 protected:
  ~AwaitedInWindow() = default;

  const Win& win_;
};

}  // namespace aplib::mpi
