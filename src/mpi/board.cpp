// SPDX-License-Identifier: MIT
#include "mpi/board.hpp"

#include "base/spin_lock.hpp"
#include "mpi/collective.hpp"

namespace aplib::mpi {

Elements Given::block_of(int rank) const {
  return block != nullptr ? block(blocks, rank) : part_of(first, step * rank, first.count);
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
  std::uint64_t sum = 0;
  const std::uint32_t lines = line_count_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < lines; ++i) sum += lines_[i].arrived.load(std::memory_order_acquire);
  return sum >= (episode + 1) * ranks_;
}

// Who reads on our own processor does not run now. A copy takes no longer than its bytes.
void Board::close(std::uint32_t processor) noexcept {
  is_closed_.store(true, std::memory_order_relaxed);
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
