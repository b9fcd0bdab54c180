// SPDX-License-Identifier: MIT
// Meeting: one collective call at the board of its communicator, as one of its ranks carries it out. The rank shows
// what it gives, arrives, takes what it gets straight from the others' memory, and leaves.
#pragma once

#include "mpi/awaited_ranks.hpp"
#include "mpi/board.hpp"
#include "mpi/collective.hpp"

namespace aplib::mpi {

class Meeting {
 public:
  /// `agreed`: what the ranks must agree on beside the call, its root and its operation. May wait.
  Meeting(const Collective& collective, Board& board, std::uint64_t agreed = 0)
      : collective_(collective),
        board_(board),
        self_(&api::task(collective.name())),
        own_(slot(collective.rank())),
        episode_(own_.progress.load(std::memory_order_relaxed) / 2),  // relaxed: own value
        agreed_(static_cast<std::uint32_t>(agreed ^ agreed >> 32)) {
    if (board.is_closed_.load(std::memory_order_relaxed)) [[unlikely]]  // relaxed: begin_reading() looks again
      fail_closed();
    if (own_.complete < episode_) [[unlikely]]
      static_cast<void>(complete(episode_ - 1));
  }
  /// The same meeting, for the rest of a brief call.
  Meeting(const Collective& collective, const Meeting& begun) noexcept
      : collective_(collective),
        board_(begun.board_),
        self_(begun.self_),
        own_(begun.own_),
        episode_(begun.episode_),
        agreed_(begun.agreed_),
        has_shown_(begun.has_shown_) {}
  ~Meeting() { stop_reading(); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// The last meeting at the communicator's board is complete, so the next one begins without a wait.
  [[nodiscard]] static bool can_begin(const Comm& comm) noexcept {
    const Board::Slot& own = comm.board->slots_[static_cast<std::size_t>(comm.rank())];
    const std::uint64_t episode = own.progress.load(std::memory_order_relaxed) / 2;  // relaxed: own value
    return own.complete >= episode || comm.board->is_complete(episode - 1);
  }

  [[nodiscard]] static constexpr bool is_small(Count bytes) noexcept { return bytes <= Board::copied_max; }

  /// For all to see. True: they see a copy, so the memory is the caller's again.
  bool show(const Elements& elements);
  /// A block for each rank: that of rank i begins i * elements.count elements behind.
  bool show_blocks(const Elements& elements);
  /// Without a copy.
  void show(const Given& given);

  /// Arrives, and goes on to wait_for_all() or end_when_complete() at once: processors that sleep are woken when all
  /// have arrived.
  void arrive();
  /// The same, but does something else first, or others wait for what it has shown: wakes processors that sleep.
  void arrive_and_wake();
  /// Arrives, and does not wait.
  void leave();
  /// Until all have arrived. Fails if they disagree.
  void wait_for_all();
  void arrive_and_wait() {
    arrive();
    wait_for_all();
  }
  /// The same. Meanwhile it copies parts of what others take by take_helped().
  void arrive_and_help();
  /// When all have arrived, does end(meeting), the rest of the call, which refers to nothing on the stack: a brief
  /// pending call does it later.
  template <class End>
  void end_when_complete(const End& end);
  /// The same when the rank has shown what it gives: see wait_for().
  template <class End>
  void end_when_shown_by(int rank, const End& end);
  /// All have arrived.
  [[nodiscard]] bool is_complete() const noexcept { return board_.is_complete(episode_); }
  /// The call's second episode begins. REQUIRES: wait_for_all().
  void begin_next() noexcept;
  /// Does the work; then waits, if `waits`, until all others have done theirs, too, and does what is left to do
  /// meanwhile. What the work throws comes after that.
  template <class Work, class Meanwhile>
  void part_after(bool waits, const Work& work, const Meanwhile& meanwhile) {
    try {
      work();
    } catch (...) {
      stop_reading();
      if (waits) part([] {});
      throw;
    }
    stop_reading();
    if (waits) return part(meanwhile);
    meanwhile();
  }
  template <class Work>
  void part_after(bool waits, const Work& work) {
    part_after(waits, work, [] {});
  }

  /// Does the work; then leaves.
  template <class Work>
  void leave_after(const Work& work) {
    try {
      work();
    } catch (...) {
      leave();
      throw;
    }
    leave();
  }

  /// Until the rank has shown what it gives. Arrives and fails if that is in another call.
  void wait_for(int rank);
  /// The caller's block of what the rank shows. REQUIRES: it has shown it.
  [[nodiscard]] Elements shown_by(int rank) const;
  /// Has this core fetch what all show, before it is asked for one by one.
  void prefetch_shown() const noexcept;
  [[nodiscard]] int size() const noexcept { return collective_.size(); }
  [[nodiscard]] Elements result_of(int rank) const noexcept { return slot(rank).given[parity()].result; }
  /// Copies shown_by(from). Fails unless it has exactly the bytes of `to`.
  void take(int from, const Elements& to);
  /// The same from a rank in arrive_and_help(), which copies a part of what is large.
  void take_helped(int from, const Elements& to);
  /// Before the caller reads others' memory itself. It may not wait until it stops. Fails if the board is closed.
  void begin_reading();
  void stop_reading() noexcept {
    if (!is_reading_) return;
    is_reading_ = false;
    own_.reading.store(0, std::memory_order_release);  // release: what we have read
  }

  /// A root has what the others show, which wait for that.
  void finish();
  template <class Work>
  void finish_after(const Work& work) {
    try {
      work();
    } catch (...) {
      finish();
      throw;
    }
    finish();
  }
  void wait_for_finish(int root);

  /// The result of a reduction, computed once on each processor. False: nobody here has computed it yet.
  [[nodiscard]] bool take_result(const Elements& result) const;
  void keep_result(const Elements& result) const;

 private:
  class Awaited;
  class AllArrived;
  class AllTaken;
  class Reached;
  template <class AwaitedKind, class End>
  class Rest;

  [[nodiscard]] Board::Slot& slot(int rank) const noexcept { return board_.slots_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t parity() const noexcept { return episode_ & 1U; }
  [[noreturn]] void fail_closed() const;
  [[nodiscard]] Board::Place& place() const noexcept { return board_.places_[api::processor(*self_)]; }
  [[nodiscard]] std::byte* room(std::size_t bytes);
  void arrive_in_line() const;
  void sign() noexcept {
    own_.tag[parity()] = collective_.tag();
    own_.agreed[parity()] = agreed_;
    has_shown_ = true;
  }
  void publish() noexcept;
  template <class Meanwhile>
  void part(const Meanwhile& meanwhile) {
    begin_next();
    arrive_and_wake();
    meanwhile();
    wait_for_all();
  }
  void wait(Awaited& awaited);
  void resume(Wake how, Awaited& awaited);
  void close(int ended) const noexcept;
  [[nodiscard]] bool seems_complete(std::uint64_t episode) const noexcept;
  Board::Place& complete(std::uint64_t episode);
  Board::Place& note_complete(std::uint64_t episode);
  void agree(Board::Place& here) const;
  void check_agreement() const;
  [[noreturn]] void fail_agreement() const;
  [[nodiscard]] bool agrees_with(int rank) const noexcept {
    return slot(rank).tag[parity()] == collective_.tag() && slot(rank).agreed[parity()] == agreed_;
  }
  [[nodiscard]] std::uint64_t signature() const noexcept {
    return (std::uint64_t{collective_.tag()} + 1) | std::uint64_t{agreed_} << 32;
  }

  const Collective& collective_;
  Board& board_;
  TaskControl* self_;  // a pending call may go on by another task
  Board::Slot& own_;
  std::uint64_t episode_;
  std::uint32_t agreed_;
  bool has_shown_ = false;
  bool is_reading_ = false;
};

}  // namespace aplib::mpi
