// SPDX-License-Identifier: MIT
// Epochs: when ranks reach each other's memory in a window. Each call checks that it is allowed now.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "mpi/plain_window.hpp"
#include "mpi/rank.hpp"
#include "mpi/remote_window.hpp"

namespace aplib::mpi {

void barrier(const Call& call, Comm& comm);

namespace {

/// Ranks have opened their memory for this one.
class AllPosted final : public AwaitedInWindow {
 public:
  AllPosted(const Win& win, const std::vector<int>& ranks) noexcept : AwaitedInWindow(win), ranks_(ranks) {}

  [[nodiscard]] bool holds() const noexcept override {
    while (next_ < ranks_.size() && win_.own().is_posted_by(ranks_[next_])) ++next_;
    return next_ == ranks_.size();
  }

 private:
  [[nodiscard]] bool is_missing(int rank) const noexcept override {
    return std::ranges::find(ranks_, rank) != ranks_.end() && !win_.own().is_posted_by(rank);
  }

  const std::vector<int>& ranks_;
  mutable std::size_t next_ = 0;
};

/// Ranks are done with this one's memory.
class AllCompleted final : public AwaitedInWindow {
 public:
  using AwaitedInWindow::AwaitedInWindow;

  [[nodiscard]] bool holds() const noexcept override {
    return win_.own().completed() == static_cast<int>(win_.exposed_to.size());
  }

 private:
  [[nodiscard]] bool is_missing(int rank) const noexcept override {
    return std::ranges::find(win_.exposed_to, rank) != win_.exposed_to.end() && !win_.own().is_completed_by(rank);
  }
};

/// This rank has got the locks of ranks [first, end).
class AllLocked final : public AwaitedInWindow {
 public:
  AllLocked(const Win& win, int first, int end) noexcept : AwaitedInWindow(win), next_(first), end_(end) {}

  [[nodiscard]] bool holds() const noexcept override {
    while (next_ < end_ && win_.member(next_).is_locked_by(win_.rank())) ++next_;
    return next_ == end_;
  }
  [[nodiscard]] std::string missing() const override {
    return AwaitedInWindow::missing() + ", to unlock the memory of others";
  }

 private:
  // Who has the lock of a rank of another process is known there alone. So a wait ends in vain only when that rank
  // ends.
  [[nodiscard]] bool is_missing(int rank) const noexcept override {
    if (rank == win_.rank()) return false;
    for (int of = next_; of < end_; ++of) {
      WindowBoard::Member& member = win_.member(of);
      if (member.is_here ? member.is_locked_by(rank) : of == rank && !member.is_locked_by(win_.rank())) return true;
    }
    return false;
  }

  mutable int next_;
  int end_;
};

/// Other ranks may wait for what this one has done.
void stir_others(const Call& call) { api::stir(api::task(call.name()), false); }

/// Ranks have got the lock of a rank of this process.
void tell_given(const Call& call, Win& win, int target, const std::vector<int>& given) {
  if (given.empty()) return;
  stir_others(call);
  for (const int rank : given) {
    if (!win.member(rank).is_here) RemoteTarget(call, win, rank).give_lock(target);
  }
}

void check_assert(int given, int allowed, const char* names) {
  if ((given & ~allowed) != 0) fail(MPI_ERR_ASSERT, fmt::format("assert is {}; use 0 or {}", given, names));
}

[[noreturn]] void fail_sync(const std::string& text) { fail(MPI_ERR_RMA_SYNC, text); }

/// The call that ends what lets the rank reach others now.
const char* end_of(Win::Access access) {
  switch (access) {
    case Win::Access::start:
      return "MPI_Win_complete";
    case Win::Access::lock:
      return "MPI_Win_unlock";
    case Win::Access::lock_all:
      return "MPI_Win_unlock_all";
    case Win::Access::none:
    case Win::Access::fence:
      break;
  }
  return "MPI_Win_fence";
}

/// An epoch that fences have opened and that has no calls is none.
void check_no_access(const Win& win) {
  if (win.access == Win::Access::none || (win.access == Win::Access::fence && !win.is_used)) return;
  fail_sync(fmt::format("an epoch is open on {}; end it by {} first", win.title(), end_of(win.access)));
}

void check_not_exposed(const Win& win) {
  if (win.is_exposed) fail_sync(fmt::format("{} is open for others; call MPI_Win_wait first", win.title()));
}

/// The group's ranks in the window.
std::vector<int> ranks_of_group(const Win& win, const Group& group) {
  std::vector<int> ranks(group.size());
  for (std::uint32_t i = 0; i < group.size(); ++i) {
    ranks[i] = win.comm->rank_of(CellId{group.cell(i)});
    if (ranks[i] == MPI_UNDEFINED)
      fail(MPI_ERR_GROUP, fmt::format("rank {} of group is not in {}; give a part of its group", i, win.title()));
  }
  return ranks;
}

}  // namespace

// ---------------------------------------------------------------- fences

void win_fence(const Call& call, int assert, Win& win) {
  check_assert(assert, MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED,
               "some of MPI_MODE_NOSTORE, _NOPUT, _NOPRECEDE and _NOSUCCEED");
  if (win.access != Win::Access::fence) check_no_access(win);
  check_not_exposed(win);
  flush_processes(call, win);
  barrier(call, *win.comm);
  win.begin_access((assert& MPI_MODE_NOSUCCEED) != 0 ? Win::Access::none : Win::Access::fence);
  check_refused(win);
}

// ---------------------------------------------------------------- groups

void win_start(const Call& call, Group& group, int assert, Win& win) {
  check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK");
  check_no_access(win);
  std::vector<int> ranks = ranks_of_group(win, group);
  if ((assert& MPI_MODE_NOCHECK) == 0) {
    AllPosted posted(win, ranks);
    posted.wait(call, "MPI_Win_post");
    for (const int rank : ranks) win.own().take_post(rank);
  }
  for (const int rank : ranks) win.set_reach(rank, Win::Reach::started);
  win.started = std::move(ranks);
  win.begin_access(Win::Access::start);
}

void win_complete(const Call& call, Win& win) {
  if (win.access != Win::Access::start) fail_sync("no epoch is open that MPI_Win_start has begun");
  for (const int rank : win.started) {
    win.set_reach(rank, Win::Reach::none);
    WindowBoard::Member& its = win.member(rank);
    if (its.is_here) {
      its.note_complete(win.rank());
    } else {
      RemoteTarget(call, win, rank).note_complete();
    }
  }
  win.started.clear();
  win.begin_access(Win::Access::none);
  stir_others(call);
  if (win.is_dynamic()) flush_processes(call, win);  // only then it is known what could not be put
  check_refused(win);
}

void win_post(const Call& call, Group& group, int assert, Win& win) {
  check_assert(assert, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT,
               "some of MPI_MODE_NOCHECK, _NOSTORE and _NOPUT");
  check_not_exposed(win);
  std::vector<int> ranks = ranks_of_group(win, group);
  if ((assert& MPI_MODE_NOCHECK) == 0) {
    for (const int rank : ranks) {
      WindowBoard::Member& its = win.member(rank);
      if (its.is_here) {
        its.note_post(win.rank());
      } else {
        RemoteTarget(call, win, rank).note_post();
      }
    }
  }
  win.exposed_to = std::move(ranks);
  win.is_exposed = true;
  stir_others(call);
}

namespace {

void check_exposed(const Win& win) {
  if (!win.is_exposed) fail_sync("no epoch is open that MPI_Win_post has begun");
}

void end_exposure(Win& win) {
  win.own().forget_completed();
  win.exposed_to.clear();
  win.is_exposed = false;
}

}  // namespace

void win_wait(const Call& call, Win& win) {
  check_exposed(win);
  AllCompleted completed(win);
  completed.wait(call, "MPI_Win_complete");
  end_exposure(win);
}

void win_test(const Call& call, Win& win, int* flag) {
  check_exposed(win);
  call.rank().pending_calls.go_on(call.name());
  *flag = AllCompleted(win).holds() ? 1 : 0;
  if (*flag != 0) return end_exposure(win);
  plain::let_others_run(win);
}

// ---------------------------------------------------------------- locks

namespace {

/// MPI_PROC_NULL is nobody, whom a program may lock.
bool is_nobody(const Win& win, int rank) {
  if (rank == MPI_PROC_NULL) return true;
  check_window_rank("rank", win, rank);
  return false;
}

/// False: it is asked for.
bool take_lock(const Call& call, Win& win, int rank, bool exclusive) {
  WindowBoard::Member& its = win.member(rank);
  if (its.is_here) return its.lock(win.rank(), exclusive);
  RemoteTarget(call, win, rank).ask_for_lock(exclusive);
  return false;
}

void give_lock_back(const Call& call, Win& win, int rank) {
  if (win.member(rank).is_here) {
    tell_given(call, win, rank, win.member(rank).unlock(win.rank()));
  } else {
    RemoteTarget(call, win, rank).unlock();
  }
}

/// Does something for all ranks of [first, end), whether it fails or not: the first failure.
template <class Action>
std::optional<Failure> for_each(int first, int end, const Action& action) {
  std::optional<Failure> failure;
  for (int rank = first; rank < end; ++rank) {
    try {
      action(rank);
    } catch (const Failure& now) {
      if (!failure) failure = now;
    }
  }
  return failure;
}

/// Waits for the locks of ranks [first, end), which the rank has asked for.
void await_locks(const Call& call, Win& win, int first, int end) {
  AllLocked locked(win, first, end);
  try {
    locked.wait(call, "giving the lock");
  } catch (const Failure& failure) {
    for_each(first, end, [&](int rank) {
      if (failure.code != MPI_ERR_PROC_ABORTED) return;  // the machine stops
      if (win.member(rank).is_here) {
        tell_given(call, win, rank, win.member(rank).cancel(win.rank()));
      } else {
        RemoteTarget(call, win, rank).cancel_lock();
      }
    });
    throw;
  }
}

}  // namespace

void win_lock(const Call& call, int type, int rank, int assert, Win& win) {
  if (type != MPI_LOCK_SHARED && type != MPI_LOCK_EXCLUSIVE)
    fail(MPI_ERR_LOCKTYPE, fmt::format("lock_type is {}; use MPI_LOCK_SHARED or MPI_LOCK_EXCLUSIVE", type));
  check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK");
  if (is_nobody(win, rank)) return;
  if (win.access != Win::Access::lock) check_no_access(win);
  if (win.reach_of(rank) != Win::Reach::none)
    fail_sync(fmt::format("rank {} is locked by this rank already; unlock it first", rank));
  const bool is_unchecked = (assert& MPI_MODE_NOCHECK) != 0;
  if (!is_unchecked && !take_lock(call, win, rank, type == MPI_LOCK_EXCLUSIVE)) await_locks(call, win, rank, rank + 1);
  if (win.access != Win::Access::lock) win.begin_access(Win::Access::lock);
  win.set_reach(rank, is_unchecked ? Win::Reach::unchecked : Win::Reach::locked);
}

void win_unlock(const Call& call, int rank, Win& win) {
  if (is_nobody(win, rank)) return;
  const Win::Reach reach = win.access == Win::Access::lock ? win.reach_of(rank) : Win::Reach::none;
  if (reach == Win::Reach::none)
    fail_sync(fmt::format("rank {} is not locked by this rank; call MPI_Win_lock before", rank));
  win.set_reach(rank, Win::Reach::none);
  if (win.reached_count == 0) win.begin_access(Win::Access::none);
  if (reach == Win::Reach::locked) {
    give_lock_back(call, win, rank);
  } else {
    RemoteTarget(call, win, rank).flush();
  }
  plain::let_others_run(win);
  check_refused(win);
}

void win_lock_all(const Call& call, int assert, Win& win) {
  check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK");
  check_no_access(win);
  const bool is_unchecked = (assert& MPI_MODE_NOCHECK) != 0;
  if (!is_unchecked) {
    bool has_all = true;
    for (int rank = 0; rank < win.size(); ++rank) has_all = take_lock(call, win, rank, false) && has_all;
    if (!has_all) await_locks(call, win, 0, win.size());
  }
  win.begin_access(Win::Access::lock_all);
  win.is_unchecked = is_unchecked;
}

void win_unlock_all(const Call& call, Win& win) {
  if (win.access != Win::Access::lock_all) fail_sync("not all ranks are locked; call MPI_Win_lock_all before");
  const bool is_unchecked = win.is_unchecked;
  win.begin_access(Win::Access::none);
  if (is_unchecked) {
    flush_processes(call, win);
  } else if (const auto failure = for_each(0, win.size(), [&](int rank) { give_lock_back(call, win, rank); })) {
    throw *failure;
  }
  plain::let_others_run(win);
  check_refused(win);
}

// ---------------------------------------------------------------- while ranks are locked

namespace {

void check_locked(const Win& win) {
  if (!win.is_passive()) fail_sync("no rank is locked; call MPI_Win_lock or MPI_Win_lock_all before");
}

}  // namespace

// What was put in this process is there already.
void win_flush(const Call& call, int rank, Win& win) {
  if (is_nobody(win, rank)) return;
  check_locked(win);
  if (!win.reaches(rank)) fail_sync(fmt::format("rank {} is not locked by this rank; call MPI_Win_lock before", rank));
  RemoteTarget(call, win, rank).flush();
  plain::let_others_run(win);
  check_refused(win);
}

void win_flush_all(const Call& call, Win& win) {
  check_locked(win);
  flush_processes(call, win);
  plain::let_others_run(win);
  check_refused(win);
}

void win_flush_local(const Call& call, int rank, Win& win) { win_flush(call, rank, win); }
void win_flush_local_all(const Call& call, Win& win) { win_flush_all(call, win); }

void win_sync(const Call&, Win& win) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // own loads and stores before and behind it
  plain::let_others_run(win);
}

}  // namespace aplib::mpi
