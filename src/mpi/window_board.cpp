// SPDX-License-Identifier: MIT
#include "mpi/window_board.hpp"

#include <algorithm>
#include <cstdlib>

namespace aplib::mpi {

// ---------------------------------------------------------------- sets of ranks

void RankSet::add(int rank) {
  const auto place = static_cast<std::size_t>(rank);
  if (place >= is_in_.size()) is_in_.resize(place + 1);
  if (!is_in_[place]) ++count_;
  is_in_[place] = true;
}

void RankSet::remove(int rank) noexcept {
  if (!has(rank)) return;
  is_in_[static_cast<std::size_t>(rank)] = false;
  --count_;
}

// ---------------------------------------------------------------- memory

WindowBoard::Memory WindowBoard::allocate(Count bytes) noexcept {
  constexpr std::size_t alignment = 64;
  const std::size_t room = (static_cast<std::size_t>(std::max<Count>(bytes, 1)) + alignment - 1) & ~(alignment - 1);
  return {static_cast<std::byte*>(std::aligned_alloc(alignment, room)), std::free};
}

bool WindowBoard::Member::attach(std::uintptr_t address, Count bytes) {
  const std::lock_guard lock(guard_);
  const auto above = attached_.lower_bound(address);
  if (above != attached_.end() && above->first - address < static_cast<std::uintptr_t>(std::max<Count>(bytes, 1)))
    return false;
  if (above != attached_.begin()) {
    const auto& [first, size] = *std::prev(above);
    if (address - first < static_cast<std::uintptr_t>(size)) return false;
  }
  attached_.emplace(address, bytes);
  return true;
}

bool WindowBoard::Member::detach(std::uintptr_t address) {
  const std::lock_guard lock(guard_);
  return attached_.erase(address) != 0;
}

bool WindowBoard::Member::is_attached(std::uintptr_t first, Count bytes) noexcept {
  const std::lock_guard lock(guard_);
  // Regions that touch each other are one for who accesses them.
  auto next = attached_.upper_bound(first);
  if (next == attached_.begin()) return false;
  for (--next; next != attached_.end() && first - next->first < static_cast<std::uintptr_t>(next->second); ++next) {
    const Count here = next->second - static_cast<Count>(first - next->first);
    if (bytes <= here) return true;
    bytes -= here;
    first += static_cast<std::uintptr_t>(here);
  }
  return false;
}

// ---------------------------------------------------------------- locks

void WindowBoard::Member::give_lock(const Waiting& to) {
  lockers_.add(to.rank);
  is_exclusive_ = to.is_exclusive;
}

bool WindowBoard::Member::lock(int rank, bool exclusive) {
  const std::lock_guard lock(guard_);
  if (waiting_.empty() && can_give(exclusive)) {
    give_lock({rank, exclusive});
    return true;
  }
  waiting_.push_back({rank, exclusive});
  return false;
}

std::vector<int> WindowBoard::Member::give_on() {
  std::vector<int> given;
  while (!waiting_.empty() && can_give(waiting_.front().is_exclusive)) {
    given.push_back(waiting_.front().rank);
    give_lock(waiting_.front());
    waiting_.pop_front();
  }
  return given;
}

std::vector<int> WindowBoard::Member::unlock(int rank) {
  const std::lock_guard lock(guard_);
  lockers_.remove(rank);
  return give_on();
}

std::vector<int> WindowBoard::Member::cancel(int rank) {
  const std::lock_guard lock(guard_);
  std::erase_if(waiting_, [rank](const Waiting& each) { return each.rank == rank; });
  lockers_.remove(rank);  // it may just have got it
  return give_on();
}

void WindowBoard::Member::note_lock(int rank) {
  const std::lock_guard lock(guard_);
  lockers_.add(rank);
}

void WindowBoard::Member::forget_lock(int rank) noexcept {
  const std::lock_guard lock(guard_);
  lockers_.remove(rank);
}

bool WindowBoard::Member::is_locked_by(int rank) noexcept {
  const std::lock_guard lock(guard_);
  return lockers_.has(rank);
}

// ---------------------------------------------------------------- epochs

void WindowBoard::Member::note_post(int rank) {
  const std::lock_guard lock(guard_);
  posts_.add(rank);
}

bool WindowBoard::Member::is_posted_by(int rank) noexcept {
  const std::lock_guard lock(guard_);
  return posts_.has(rank);
}

void WindowBoard::Member::take_post(int rank) noexcept {
  const std::lock_guard lock(guard_);
  posts_.remove(rank);
}

void WindowBoard::Member::note_complete(int rank) {
  const std::lock_guard lock(guard_);
  completed_.add(rank);
}

bool WindowBoard::Member::is_completed_by(int rank) noexcept {
  const std::lock_guard lock(guard_);
  return completed_.has(rank);
}

int WindowBoard::Member::completed() noexcept {
  const std::lock_guard lock(guard_);
  return completed_.count();
}

void WindowBoard::Member::forget_completed() noexcept {
  const std::lock_guard lock(guard_);
  completed_ = {};
}

// ---------------------------------------------------------------- begin and end

WindowBoard::WindowBoard(int ranks, int holders, bool is_dynamic)
    : size_(ranks),
      is_dynamic_(is_dynamic),
      members_(std::make_unique<Member[]>(static_cast<std::size_t>(ranks))),
      holders_(holders) {}

WindowBoard::~WindowBoard() {
  if (on_end) on_end();
}

void WindowBoard::release() noexcept {
  if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;  // acq_rel: what the others did
}

}  // namespace aplib::mpi
