// SPDX-License-Identifier: MIT
#include "mpi/host_board.hpp"

#include <algorithm>

#include "mpi/awaited_ranks.hpp"
#include "mpi/collective.hpp"

namespace aplib::mpi {

// ---------------------------------------------------------------- memory

/// Where everything is, in bytes from the beginning.
struct HostBoard::Layout {
  std::size_t ranks;
  std::size_t lines = sizeof(Head);
  std::size_t words = lines + 2 * ranks * sizeof(Line);
  std::size_t heard = words + words_ahead * ranks * sizeof(Line);
  std::size_t seats =
      (heard + ranks * ranks * sizeof(std::atomic<std::uint64_t>) + cache_line_bytes - 1) & ~(cache_line_bytes - 1);
  std::size_t blocks = seats + ranks * sizeof(Seat);
  std::size_t told = blocks + 2 * ranks * bytes_max;
  std::size_t end = told + words_ahead * ranks * told_max;
};

// Zeros, as the memory is, are what all of it begins with.
HostBoard::HostBoard(api::SharedMemory memory, int ranks)
    : memory_(std::move(memory)), ranks_(ranks), words_of_(static_cast<std::size_t>(ranks)) {
  const Layout layout{size()};
  lines_ = reinterpret_cast<Line*>(memory_.data() + layout.lines);
  words_ = reinterpret_cast<Line*>(memory_.data() + layout.words);
  heard_ = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.data() + layout.heard);
  seats_ = reinterpret_cast<Seat*>(memory_.data() + layout.seats);
  blocks_ = memory_.data() + layout.blocks;
  told_ = memory_.data() + layout.told;
}

std::unique_ptr<HostBoard> HostBoard::make(int ranks) {
  auto memory = api::SharedMemory::make(Layout{static_cast<std::size_t>(ranks)}.end);
  return memory ? std::unique_ptr<HostBoard>(new HostBoard(*std::move(memory), ranks)) : nullptr;
}

std::unique_ptr<HostBoard> HostBoard::open(const SharedFilePlace& place, int ranks) {
  auto memory = api::SharedMemory::open(place, Layout{static_cast<std::size_t>(ranks)}.end);
  return memory ? std::unique_ptr<HostBoard>(new HostBoard(*std::move(memory), ranks)) : nullptr;
}

// ---------------------------------------------------------------- waiting

class HostBoard::Awaited : public AwaitedRanks {
 public:
  Awaited(const HostBoard& board, const Collective& collective) noexcept
      : AwaitedRanks(collective.comm()), board_(board), collective_(collective) {}
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;

  [[nodiscard]] bool holds() const noexcept final { return elsewhere_ >= 0 || has_come(); }
  // seq_cst: invariant (4)
  void sleeps(bool does) const noexcept final {
    std::atomic<bool>& own = board_.seat(comm().rank()).sleeps;
    if (does) look_elsewhere();
    if (own.load(std::memory_order_relaxed) == does) return;  // relaxed: own value
    own.store(does, std::memory_order_seq_cst);
    board_.head().sleepers.fetch_add(does ? 1U : ~0U, std::memory_order_seq_cst);
  }
  void let_go() noexcept final {}

  /// A rank that will not come, because it is in another call; -1: none is known.
  [[nodiscard]] int elsewhere() const noexcept { return elsewhere_; }

 protected:
  ~Awaited() { sleeps(false); }
  [[nodiscard]] virtual bool has_come() const noexcept = 0;

  const HostBoard& board_;

 private:
  // Who comes to another call later looks for us.
  void look_elsewhere() const noexcept {
    for (int rank = 0; rank < comm().size() && elsewhere_ < 0; ++rank) {
      if (!is_missing(rank)) continue;
      // acquire: it may have come and gone on meanwhile
      const std::uint64_t call = board_.seat(rank).call.load(std::memory_order_acquire);
      const auto ahead = static_cast<std::int32_t>(static_cast<std::uint32_t>(call >> 32U) - comm().collective_calls);
      const bool is_past = ahead > 0 || (ahead == 0 && static_cast<std::uint32_t>(call) != collective_.tag());
      if (is_past && !has_come()) elsewhere_ = rank;
    }
  }

  const Collective& collective_;
  mutable int elsewhere_ = -1;
};

/// All ranks have arrived in a meeting.
class HostBoard::AllHere final : public Awaited {
 public:
  AllHere(const HostBoard& board, const Collective& collective, std::uint64_t meeting) noexcept
      : Awaited(board, collective), meeting_(meeting) {}

 private:
  [[nodiscard]] bool has_come() const noexcept override {
    return board_.head().arrived.load(std::memory_order_acquire) >=  // acquire: what all have shown
           board_.size() * (meeting_ + 1);
  }
  [[nodiscard]] bool is_missing(int rank) const noexcept override {
    return board_.shown(meeting_, rank).line->number.load(std::memory_order_relaxed) <= meeting_;  // relaxed: a number
  }

  std::uint64_t meeting_;
};

/// A root has told a word.
class HostBoard::Told final : public Awaited {
 public:
  Told(const HostBoard& board, const Collective& collective, int root, const Line& line, std::uint64_t number) noexcept
      : Awaited(board, collective), root_(root), line_(line), number_(number) {}

 private:
  [[nodiscard]] bool has_come() const noexcept override {
    return line_.number.load(std::memory_order_acquire) > number_;  // acquire: what it has shown
  }
  [[nodiscard]] bool is_missing(int rank) const noexcept override { return rank == root_; }

  int root_;
  const Line& line_;
  std::uint64_t number_;
};

/// All others have heard so many words of a root.
class HostBoard::AllHeard final : public Awaited {
 public:
  AllHeard(const HostBoard& board, const Collective& collective, std::uint64_t words) noexcept
      : Awaited(board, collective), words_(words) {}

  /// The words that all have heard.
  [[nodiscard]] std::uint64_t least() const noexcept {
    std::uint64_t least = ~std::uint64_t{0};
    for (int rank = 0; rank < comm().size(); ++rank) {
      if (rank != comm().rank()) least = std::min(least, heard_by(rank));
    }
    return least;
  }

 private:
  [[nodiscard]] bool has_come() const noexcept override {
    for (; next_ < comm().size(); ++next_) {
      if (is_missing(next_)) return false;
    }
    return true;
  }
  // acquire: it has done with them
  [[nodiscard]] std::uint64_t heard_by(int rank) const noexcept {
    return board_.heard(comm().rank(), rank).load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_missing(int rank) const noexcept override {
    return rank != comm().rank() && heard_by(rank) < words_;
  }

  std::uint64_t words_;
  mutable int next_ = 0;  // those before have heard them
};

void HostBoard::wait(const Collective& collective, Awaited& awaited) {
  if (awaited.holds()) return;
  switch (collective.wait(api::task(collective.name()), awaited)) {
    case Wake::done:
      if (awaited.elsewhere() < 0) return;
      wake_sleepers(collective);  // they look for us now
      collective.fail_disagreement(
          awaited.elsewhere(),
          static_cast<std::uint32_t>(seat(awaited.elsewhere()).call.load(std::memory_order_acquire)));  // acquire: so
    case Wake::ended:
      ended_ = awaited.ended();
      fail_ended(ended_);
    case Wake::stopping:
      fail(MPI_ERR_OTHER, "the machine stops");
  }
}

void HostBoard::wake_sleepers(const Collective& collective) const {
  api::look_again(api::task(collective.name()));
  if (head().sleepers.load(std::memory_order_seq_cst) == 0) return;  // invariant (4)
  for (int rank = 0; rank < ranks_; ++rank) wake_sleeper(collective, rank);
}

void HostBoard::wake_sleeper(const Collective& collective, int rank) const {
  if (seat(rank).sleeps.load(std::memory_order_seq_cst))  // invariant (4)
    api::wake(api::task(collective.name()), collective.name(), collective.comm().cell_of(rank));
}

// Others may not have seen yet what is there, so nothing more is shown.
void HostBoard::check_open() const {
  if (ended_ >= 0) [[unlikely]]
    fail_ended(ended_, earlier_call);
}

// ---------------------------------------------------------------- showing

void HostBoard::show(const Block& block, const Collective& collective, const Elements& own, Count bytes_max) {
  const Count bytes = own.bytes();
  if (bytes <= bytes_max) copy(bytes_at(block.place(bytes), bytes), own, 0, bytes);
  block.line->tag = collective.tag();
  block.line->bytes = static_cast<std::uint64_t>(bytes);
}

void HostBoard::meet(const Collective& collective, const Elements& own) {
  check_open();
  const std::uint64_t meeting = meetings_++;
  const Block mine = shown(meeting, collective.rank());
  show(mine, collective, own, bytes_max);
  mine.line->number.store(meeting + 1, std::memory_order_release);  // release: what is shown
  // seq_cst: invariant (4), and what we have shown
  if (head().arrived.fetch_add(1, std::memory_order_seq_cst) + 1 == size() * (meeting + 1)) {
    wake_sleepers(collective);
  } else {
    AllHere all(*this, collective, meeting);
    wait(collective, all);
  }
  check(collective, meeting, own.bytes());
}

void HostBoard::check(const Collective& collective, std::uint64_t meeting, Count bytes) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Line& its = *shown(meeting, rank).line;
    // One that has ended has not come, though others that did not wait for it are in a later meeting.
    if (its.number.load(std::memory_order_acquire) != meeting + 1) [[unlikely]]  // acquire: what it has shown
      fail_ended(rank);
    if (its.tag != collective.tag()) [[unlikely]]
      collective.fail_disagreement(rank, its.tag);
    if (its.bytes != static_cast<std::uint64_t>(bytes)) [[unlikely]]
      fail_bytes(rank, static_cast<Count>(its.bytes), bytes);
  }
}

void HostBoard::take(int from, const Elements& to, Count first) const {
  const Block its = shown(meetings_ - 1, from);
  copy(to, bytes_at(its.place(static_cast<Count>(its.line->bytes)) + first, to.bytes()), 0, to.bytes());
}

// ---------------------------------------------------------------- telling

void HostBoard::tell(const Collective& collective, const Elements& own) {
  check_open();
  const int rank = collective.rank();
  const std::uint64_t number = words_of_[static_cast<std::size_t>(rank)]++;
  if (number - heard_by_all_ >= words_ahead) {
    AllHeard all(*this, collective, number - words_ahead + 1);
    wait(collective, all);
    heard_by_all_ = all.least();
  }
  const Block mine = word(number, rank);
  show(mine, collective, own, told_max);
  mine.line->number.store(number + 1, std::memory_order_seq_cst);  // invariant (4), and what is shown
  wake_sleepers(collective);
}

// Words of earlier calls are left where ranks have disagreed.
void HostBoard::hear(const Collective& collective, int root, const Elements& to) {
  check_open();
  std::uint64_t& next = words_of_[static_cast<std::size_t>(root)];
  bool is_ours = false;
  while (!is_ours) {
    const Block its = word(next, root);
    Told told(*this, collective, root, *its.line, next);
    wait(collective, told);
    is_ours = collective.is_ours(root, its.line->tag);
    const auto bytes = static_cast<Count>(its.line->bytes);
    const bool fits = bytes == to.bytes();
    if (is_ours && fits && can_tell(bytes)) copy(to, bytes_at(its.place(bytes), bytes), 0, bytes);
    // seq_cst: invariant (4), and that we have read it
    heard(root, collective.rank()).store(++next, std::memory_order_seq_cst);
    wake_sleeper(collective, root);
    if (is_ours && !fits) [[unlikely]]
      fail_bytes(root, bytes, to.bytes());
  }
}

}  // namespace aplib::mpi
