// SPDX-License-Identifier: MIT
#include "mpi/board.hpp"

#include <algorithm>

#include "base/spin_lock.hpp"
#include "mpi/collective.hpp"

namespace aplib::mpi {

Elements Given::block_of(int rank) const {
  return block != nullptr ? block(blocks, rank) : part_of(first, step * rank, first.count);
}

void SharedCopy::begin(const Elements& to, const Elements& from) noexcept {
  to_ = to;
  from_ = from;
  bytes_ = to.bytes();
  chunk_bytes_ = std::max(chunk_bytes_min, (bytes_ / chunks_max + 4095) & ~Count{4095});
  count_ = static_cast<std::uint32_t>((bytes_ + chunk_bytes_ - 1) / chunk_bytes_);
  helped_ = 0;
  claimed_.store(0, std::memory_order_relaxed);   // published by the slot
  finished_.store(0, std::memory_order_relaxed);  // same
}

void SharedCopy::finish() noexcept {
  for (std::uint32_t i = 0; claim(); ++i) copy_chunk(i);
  // One chunk away, unless the other one has lost its core. Acquire: what it has copied.
  for (SpinWait spin; finished_.load(std::memory_order_acquire) < count_;) spin.pause();
}

bool SharedCopy::help() noexcept {
  if (!claim()) return false;
  copy_chunk(count_ - ++helped_);
  return true;
}

void SharedCopy::copy_chunk(std::uint32_t chunk) noexcept {
  const Count first = chunk_bytes_ * chunk;
  copy(to_, from_, first, std::min(chunk_bytes_, bytes_ - first));
  finished_.fetch_add(1, std::memory_order_release);  // release: what is copied
}

Board::Board(std::uint32_t ranks, std::uint32_t processors)
    : ranks_(ranks),
      slots_(std::make_unique<Slot[]>(ranks)),
      lines_(std::make_unique<Line[]>(processors)),
      places_(std::make_unique<Place[]>(processors)),
      holders_(ranks) {}

void Board::release() noexcept {
  if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;  // acq_rel: what the others did
}

// Acquire: what each has done before it arrived.
bool Board::is_complete(std::uint64_t episode) const noexcept {
  if (has_few_ranks()) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      if (slots_[rank].progress.load(std::memory_order_acquire) < arrived_in(episode)) return false;
    }
    return true;
  }
  std::uint64_t sum = 0;
  const std::uint32_t lines = line_count_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < lines; ++i) sum += lines_[i].arrived.load(std::memory_order_acquire);
  return sum >= (episode + 1) * ranks_;
}

// Who reads on our own processor does not run now. A copy takes no longer than its bytes.
void Board::close(std::uint32_t processor, int ended, std::uint64_t episode) noexcept {
  if (!is_closing_.exchange(true, std::memory_order_relaxed)) {  // relaxed: only one wins
    ended_ = ended;
    failed_in_ = episode;
    is_closed_.store(true, std::memory_order_release);  // release: why
  }
  for (SpinWait spin; !is_closed_.load(std::memory_order_relaxed); spin.pause()) {  // relaxed: the fence orders it
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the store before the looks; pairs with begin_reading()
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const std::atomic<std::uint32_t>& reading = slots_[rank].reading;
    for (SpinWait spin;; spin.pause()) {
      const std::uint32_t where = reading.load(std::memory_order_acquire);  // acquire: what it has read
      if (where == 0 || where == processor + 1) break;
    }
  }
}

}  // namespace aplib::mpi
