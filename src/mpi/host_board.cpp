// SPDX-License-Identifier: MIT
#include "mpi/host_board.hpp"

#include <fmt/format.h>

#include <new>

#include "mpi/awaited_ranks.hpp"
#include "mpi/collective.hpp"

namespace aplib::mpi {

namespace {

[[noreturn]] void fail_ended(int rank) {
  fail(MPI_ERR_PROC_ABORTED, fmt::format("rank {} has ended without this call", rank));
}

}  // namespace

/// All ranks have arrived in a meeting.
class HostBoard::AllHere final : public AwaitedRanks {
 public:
  AllHere(const HostBoard& board, const Comm& comm, std::uint64_t meeting) noexcept
      : AwaitedRanks(comm), board_(board), own_(board.line(meeting, comm.rank())), meeting_(meeting) {}
  ~AllHere() { sleeps(false); }
  AllHere(const AllHere&) = delete;
  AllHere& operator=(const AllHere&) = delete;

  [[nodiscard]] bool holds() const noexcept override {
    return board_.head().arrived.load(std::memory_order_acquire) >=  // acquire: what all have shown
           static_cast<std::uint64_t>(board_.ranks_) * (meeting_ + 1);
  }
  // seq_cst: invariant (3)
  void sleeps(bool does) const noexcept override {
    if (own_.sleeps.exchange(does, std::memory_order_seq_cst) == does) return;
    board_.head().sleepers.fetch_add(does ? 1U : ~0U, std::memory_order_seq_cst);
  }
  void let_go() noexcept override {}

 private:
  [[nodiscard]] bool is_missing(int rank) const noexcept override {
    return board_.line(meeting_, rank).meeting.load(std::memory_order_relaxed) <= meeting_;  // relaxed: a count alone
  }

  const HostBoard& board_;
  Line& own_;
  std::uint64_t meeting_;
};

std::unique_ptr<HostBoard> HostBoard::make(int ranks) {
  auto memory = api::SharedMemory::make(bytes_of(ranks));
  if (!memory) return nullptr;
  std::unique_ptr<HostBoard> board(new HostBoard(*std::move(memory), ranks));
  ::new (&board->head()) Head;
  for (const std::uint64_t parity : {0, 1}) {
    for (int rank = 0; rank < ranks; ++rank) ::new (&board->line(parity, rank)) Line;
  }
  return board;
}

std::unique_ptr<HostBoard> HostBoard::open(const SharedFilePlace& place, int ranks) {
  auto memory = api::SharedMemory::open(place, bytes_of(ranks));
  if (!memory) return nullptr;
  return std::unique_ptr<HostBoard>(new HostBoard(*std::move(memory), ranks));
}

void HostBoard::meet(const Collective& collective, const Elements& own) {
  if (ended_ >= 0) [[unlikely]]  // others may not have seen yet what is there
    fail(MPI_ERR_PROC_ABORTED, fmt::format("rank {} has ended without an earlier call of the communicator", ended_));
  const std::uint64_t meeting = meetings_++;
  Line& mine = line(meeting, collective.rank());
  const Count bytes = own.bytes();
  copy(bytes_at(block(meeting, collective.rank(), bytes), bytes), own, 0, bytes);
  mine.tag = collective.tag();
  mine.bytes = static_cast<std::uint32_t>(bytes);
  mine.meeting.store(meeting + 1, std::memory_order_release);  // release: what is shown
  // seq_cst: invariant (3), and what we have shown
  const std::uint64_t arrived = head().arrived.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (arrived == static_cast<std::uint64_t>(ranks_) * (meeting + 1)) {
    wake_sleepers(collective, meeting);
  } else {
    AllHere all(*this, collective.comm(), meeting);
    switch (collective.wait(api::task(collective.name()), all)) {
      case Wake::done:
        break;
      case Wake::ended:
        ended_ = all.ended();
        fail_ended(ended_);
      case Wake::stopping:
        fail(MPI_ERR_OTHER, "the machine stops");
    }
  }
  check(collective, meeting);
}

void HostBoard::wake_sleepers(const Collective& collective, std::uint64_t meeting) const {
  TaskControl& self = api::task(collective.name());
  api::look_again(self);
  if (head().sleepers.load(std::memory_order_seq_cst) == 0) return;  // invariant (3)
  for (int rank = 0; rank < ranks_; ++rank) {
    if (line(meeting, rank).sleeps.load(std::memory_order_seq_cst))
      api::wake(self, collective.name(), collective.comm().cell_of(rank));
  }
}

void HostBoard::check(const Collective& collective, std::uint64_t meeting) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Line& its = line(meeting, rank);
    // One that has ended has not come, though others that did not wait for it are in a later meeting.
    if (its.meeting.load(std::memory_order_acquire) != meeting + 1) [[unlikely]]  // acquire: what it has shown
      fail_ended(rank);
    if (its.tag != collective.tag()) [[unlikely]]
      collective.fail_disagreement(rank, its.tag);
  }
}

void HostBoard::take(int from, const Elements& to, Count first, Count all) const {
  const std::uint64_t meeting = meetings_ - 1;
  const Count bytes = line(meeting, from).bytes;
  if (bytes != all) [[unlikely]]
    fail_bytes(from, bytes, all);
  copy(to, bytes_at(block(meeting, from, bytes) + first, to.bytes()), 0, to.bytes());
}

}  // namespace aplib::mpi
