// SPDX-License-Identifier: MIT
#include "mpi/meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mpi/meeting_rest.hpp"

namespace aplib::mpi {

namespace {

// Between elements and bytes side by side. One number at a time is what most programs reduce.
void copy_out(std::byte* bytes, const Elements& from, Count size) {
  constexpr Count word = sizeof(std::uint64_t);
  const char* const place = from.contiguous();
  if (place != nullptr && size == word) {
    std::memcpy(bytes, place, word);
  } else {
    copy(bytes_at(bytes, size), from, 0, size);
  }
}
void copy_in(const Elements& to, const std::byte* bytes, Count size) {
  constexpr Count word = sizeof(std::uint64_t);
  char* const place = to.contiguous();
  if (place != nullptr && size == word) {
    std::memcpy(place, bytes, word);
  } else {
    copy(to, bytes_at(bytes, size), 0, size);
  }
}

}  // namespace

/// All have arrived in this episode, with what they take from the caller. Each look copies something for one of them.
class Meeting::AllTaken final : public AllArrived {
 public:
  explicit AllTaken(const Meeting& meeting) noexcept : AllArrived(meeting, meeting.episode_, nullptr) {}

  [[nodiscard]] bool holds() const noexcept override {
    for (int looks = std::min(looks_max, comm().size() - 1); looks > 0 && !AllArrived::holds(); --looks) {
      if (help(next_)) break;
      next_ = (next_ + 1) % comm().size();
    }
    return AllArrived::holds();
  }

 private:
  static constexpr int looks_max = 4;

  [[nodiscard]] bool help(int rank) const noexcept {
    Board::Slot& its = meeting_.slot(rank);
    return its.progress.load(std::memory_order_acquire) >= Board::shown_in(meeting_.episode_) &&  // acquire: the copy
           its.copies[meeting_.parity()].help();
  }

  mutable int next_ = 0;
};

// ---------------------------------------------------------------- begin and end

// Whoever sees it first ends the run, so all know the reason.
void Meeting::fail_closed() const {
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with Board::close()
  fail_ended(board_.ended_, episode_ <= board_.failed_in_ ? "this call" : earlier_call);
}

void Meeting::begin_next() noexcept {
  ++episode_;
  has_shown_ = false;
}

// ---------------------------------------------------------------- showing

/// Of own memory in the slot. Made when it is first needed.
std::byte* Meeting::room(std::size_t bytes) {
  if (bytes <= Board::inline_bytes) return own_.small[parity()].data();
  if (own_.large == nullptr) own_.large = std::make_unique_for_overwrite<std::byte[]>(2 * Board::copied_max);
  return own_.large.get() + parity() * Board::copied_max;
}

bool Meeting::show(const Elements& elements) {
  const Count bytes = elements.bytes();
  if (!is_small(bytes)) {
    show(Given{.first = elements});
    return false;
  }
  copy_out(room(static_cast<std::size_t>(bytes)), elements, bytes);
  own_.copied[parity()] = {static_cast<std::uint16_t>(bytes), 0};
  publish();
  return true;
}

bool Meeting::show_blocks(const Elements& elements) {
  const Count bytes = elements.bytes();
  if (!is_small(bytes) || !is_small(bytes * collective_.size())) {
    show(Given{.first = elements, .step = elements.count});
    return false;
  }
  const Elements all = part_of(elements, 0, elements.count * collective_.size());
  const Count all_bytes = all.bytes();
  copy(bytes_at(room(static_cast<std::size_t>(all_bytes)), all_bytes), all, 0, all_bytes);
  own_.copied[parity()] = {static_cast<std::uint16_t>(bytes), static_cast<std::uint16_t>(bytes)};
  publish();
  return true;
}

void Meeting::show(const Given& given) {
  own_.given[parity()] = given;
  own_.copied[parity()] = {};
  publish();
}

void Meeting::publish() noexcept {
  sign();
  own_.progress.store(Board::shown_in(episode_), std::memory_order_release);  // release: what is shown
}

// ---------------------------------------------------------------- arriving

void Meeting::arrive() {
  if (!has_shown_) sign();
  own_.progress.store(Board::arrived_in(episode_), std::memory_order_release);  // release: all that we did
  if (!board_.has_few_ranks()) arrive_in_line();
}

void Meeting::arrive_and_wake() {
  arrive();
  api::stir(*self_, true);
}

void Meeting::arrive_in_line() const {
  Board::Place& here = place();
  // Who has no line yet adds one; nobody takes it from us meanwhile, as we are the processor.
  if (here.line == nullptr) [[unlikely]]
    here.line = &board_.lines_[board_.line_count_.fetch_add(1, std::memory_order_acq_rel)];  // acq_rel: in order
  Board::Line& line = *here.line;
  if (here.episode != episode_ + 1) {
    line.episode[parity()] = here.episode = episode_ + 1;
    line.signature[parity()] = here.signature = signature();
  } else if (here.signature != signature()) [[unlikely]] {
    line.signature[parity()] = 0;
  }
  // release: all that we did. The line is our processor's, so nobody else writes it.
  line.arrived.store(++here.arrived, std::memory_order_release);
}

void Meeting::leave() {
  stop_reading();
  arrive();
  api::stir(*self_, false);
}

void Meeting::wait(Awaited& awaited) { resume(collective_.wait(*self_, awaited), awaited); }

// Each look takes other processors' lines from them, so only that rank looks which is usually the last one here.
bool Meeting::seems_complete(std::uint64_t episode) const noexcept {
  if (board_.has_few_ranks()) return board_.is_complete(episode);
  const Board::Place& here = place();
  return here.complete > episode || (here.is_worth_a_look() && board_.is_complete(episode));
}

// The first rank on each processor that sees an episode complete makes the others there ready: other processors may
// take them over. It also wakes processors that sleep, which arrivals need not, then: of those that go to sleep before
// they have seen an episode complete, the last one to announce it looks once more after all others' arrivals.
Board::Place& Meeting::complete(std::uint64_t episode) {
  if (!seems_complete(episode)) {
    AllArrived all(*this, episode);
    wait(all);
  }
  return note_complete(episode);
}

Board::Place& Meeting::note_complete(std::uint64_t episode) {
  own_.complete = episode + 1;
  Board::Place& here = place();
  if (here.complete <= episode) {
    here.complete = episode + 1;
    here.usually = here.arrived - here.arrived_before;
    here.arrived_before = here.arrived;
    api::stir(*self_, false);
  }
  return here;
}

void Meeting::wait_for_all() { agree(complete(episode_)); }

// If one rank agrees with all, so does everyone.
void Meeting::agree(Board::Place& here) const {
  if (here.agreed == episode_ + 1) return;
  check_agreement();
  here.agreed = episode_ + 1;
}

void Meeting::arrive_and_help() {
  arrive_and_wake();
  AllTaken all(*this);
  if (!all.holds()) wait(all);
  wait_for_all();
}

void Meeting::check_agreement() const {
  for (int rank = 0; board_.has_few_ranks() && rank < collective_.size(); ++rank) {
    if (!agrees_with(rank)) [[unlikely]]
      fail_agreement();
  }
  const std::uint32_t lines = board_.line_count_.load(std::memory_order_acquire);  // acquire: as is_complete()
  for (std::uint32_t i = 0; i < lines; ++i) {
    const Board::Line& line = board_.lines_[i];
    if (line.episode[parity()] == episode_ + 1 && line.signature[parity()] != signature()) [[unlikely]]
      fail_agreement();
  }
}

void Meeting::fail_agreement() const {
  for (int rank = 0; rank < collective_.size(); ++rank) {
    if (slot(rank).tag[parity()] != collective_.tag()) collective_.fail_disagreement(rank, slot(rank).tag[parity()]);
  }
  int rank = 0;
  while (rank + 1 < collective_.size() && slot(rank).agreed[parity()] == agreed_) ++rank;
  fail(MPI_ERR_COUNT,
       fmt::format("rank {} has given another count, datatype or root than this rank; let them agree", rank));
}

// ---------------------------------------------------------------- taking

void Meeting::wait_for(int rank) {
  Reached shown(*this, rank, slot(rank).progress, Board::shown_in(episode_));
  if (!shown.holds()) wait(shown);
  if (const std::uint32_t tag = slot(rank).tag[parity()]; tag != collective_.tag()) [[unlikely]] {
    leave();
    collective_.fail_disagreement(rank, tag);
  }
}

Elements Meeting::shown_by(int rank) const {
  const Board::Slot& from = slot(rank);
  const Board::Copied copied = from.copied[parity()];
  if (copied.bytes == Board::Copied::none) return from.given[parity()].block_of(collective_.rank());
  const std::size_t all = copied.step == 0 ? copied.bytes : copied.bytes * board_.ranks_;
  const std::byte* const bytes =
      all <= Board::inline_bytes ? from.small[parity()].data() : from.large.get() + parity() * Board::copied_max;
  return bytes_at(bytes + std::size_t{copied.step} * static_cast<std::size_t>(collective_.rank()), copied.bytes);
}

void Meeting::prefetch_shown() const noexcept {
  constexpr int prefetched_max = 64;
  for (int rank = 0; rank < std::min(collective_.size(), prefetched_max); ++rank) __builtin_prefetch(&slot(rank));
}

void Meeting::take(int from, const Elements& to) {
  if (slot(from).copied[parity()].bytes == Board::Copied::none) begin_reading();
  const Elements shown = shown_by(from);
  if (shown.bytes() != to.bytes()) [[unlikely]]
    fail_bytes(from, shown.bytes(), to.bytes());
  copy(to, shown, 0, to.bytes());
}

void Meeting::take_helped(int from, const Elements& to) {
  const bool is_copied = slot(from).copied[parity()].bytes != Board::Copied::none;
  if (is_copied || to.bytes() < SharedCopy::bytes_min) return take(from, to);
  begin_reading();
  const Elements shown = shown_by(from);
  if (shown.bytes() != to.bytes()) [[unlikely]]
    fail_bytes(from, shown.bytes(), to.bytes());
  SharedCopy& copy = own_.copies[parity()];
  copy.begin(to, shown);
  publish();
  copy.finish();
}

void Meeting::begin_reading() {
  if (is_reading_) return;
  is_reading_ = true;
  own_.reading.store(api::processor(*self_) + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the store before the look; pairs with Board::close()
  if (board_.is_closed_.load(std::memory_order_relaxed)) [[unlikely]]  // relaxed: the fence orders it
    fail_closed();
}

void Meeting::finish() {
  stop_reading();
  own_.done.store(episode_ + 1, std::memory_order_release);  // release: what we have read
  api::stir(*self_, false);
}

void Meeting::wait_for_finish(int root) {
  Reached done(*this, root, slot(root).done, episode_ + 1);
  if (!done.holds()) wait(done);
}

// ---------------------------------------------------------------- results

bool Meeting::take_result(const Elements& result) const {
  const Board::Place& here = place();
  if (here.result_of != episode_ + 1) return false;
  copy_in(result, here.result.data(), result.bytes());
  return true;
}

void Meeting::keep_result(const Elements& result) const {
  if (result.bytes() > static_cast<Count>(Board::result_bytes_max)) return;
  Board::Place& here = place();
  copy_out(here.result.data(), result, result.bytes());
  here.result_of = episode_ + 1;
}

}  // namespace aplib::mpi
