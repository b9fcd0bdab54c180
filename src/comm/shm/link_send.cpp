// SPDX-License-Identifier: MIT
// The sending half of a link.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "comm/shm/link.hpp"

namespace aplib::comm::shm {
namespace {

constexpr const char* deceived = "it writes nonsense into shared memory";
constexpr std::uint32_t spins_per_clock_look = 64;

std::span<const std::byte> bytes_of(const std::uint64_t& number) { return std::as_bytes(std::span(&number, 1)); }

}  // namespace

bool Link::send(const Label& label, std::span<const std::byte> body) {
  const std::lock_guard hold(lock_);
  if (state_ == State::up && waiting_.empty()) [[likely]] {
    if (broken_) return false;
    if (body.size() >= Module::large_from_bytes) {
      send_large(label, body);
      return false;
    }
    if (writer_.put(SlotKind::frame, label, body)) [[likely]] {
      count_sent(body.size());
      bell_.ring_if_asleep();
      return false;
    }
  }
  if (state_ == State::over || broken_) return false;
  keep(label, body, body.size(), false);
  if (state_ == State::up) write_locked();
  return state_ == State::idle && (state_ = State::calling, true);
}

void Link::count_sent(std::uint64_t bytes) noexcept {
  // relaxed: written under the lock, read as a snapshot
  frames_sent_.store(frames_sent_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

/// Piece by piece from the caller's memory, while the peer takes them out; both copy at the same time.
void Link::send_large(const Label& label, std::span<const std::byte> body) {
  if (!writer_.put(SlotKind::large, label, bytes_of(body.size()))) {
    keep(label, body, body.size(), false);
    return write_locked();
  }
  std::span<const std::byte> rest = body;
  std::uint32_t spins = 0;
  std::chrono::steady_clock::time_point since{};
  while (!rest.empty()) {
    const std::span<const std::byte> piece = rest.first(std::min(rest.size(), piece_bytes_max));
    if (writer_.put(SlotKind::piece, {}, piece)) {
      rest = rest.subspan(piece.size());
      bell_.ring_if_asleep();
      spins = 0;
      since = {};
      continue;
    }
    if (writer_.is_deceived()) return break_off(deceived);
    cpu_relax();
    if (++spins % spins_per_clock_look != 0) continue;
    const auto now = std::chrono::steady_clock::now();
    if (since == std::chrono::steady_clock::time_point{}) since = now;
    if (now - since > patience) break;
  }
  if (rest.empty()) return count_sent(body.size());
  try {
    keep(label, rest, body.size(), true);
  } catch (const std::bad_alloc&) {
    break_off("there was no memory to queue the rest of a large frame");
    throw;
  }
}

void Link::keep(const Label& label, std::span<const std::byte> rest, std::uint64_t bytes, bool begun) {
  Waiting& kept = waiting_.emplace_back();
  try {
    if (!rest.empty()) kept.body = std::make_unique_for_overwrite<std::byte[]>(rest.size());
  } catch (...) {
    waiting_.pop_back();
    throw;
  }
  if (!rest.empty()) std::memcpy(kept.body.get(), rest.data(), rest.size());
  kept.label = label;
  kept.bytes = bytes;
  kept.kept = rest.size();
  kept.begun = begun;
  set_queued(queued_.load(std::memory_order_relaxed) + kept.weight());  // relaxed: written under the lock
}

void Link::set_queued(std::size_t bytes) noexcept {
  const bool any = bytes != 0;
  const bool had_any = queued_.load(std::memory_order_relaxed) != 0;  // relaxed: written under the lock
  queued_.store(bytes, std::memory_order_relaxed);
  if (any == had_any) return;
  if (any) {
    writers_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a hint; the lock orders the queue
  } else {
    writers_.fetch_sub(1, std::memory_order_relaxed);
  }
  // relaxed: the fence of arm() orders it before the sleep of which the peer shall wake us
  if (connection_.mine.data() != nullptr)
    static_cast<Segment*>(connection_.mine.data())->wants_room.store(any ? 1 : 0, std::memory_order_relaxed);
}

/// Puts out what it can of the oldest. Whether that is all of it.
bool Link::write_first() {
  Waiting& first = waiting_.front();
  const std::size_t before = first.weight();
  bool moved = false;
  bool all = false;
  if (first.bytes < Module::large_from_bytes) {
    all = moved = writer_.put(SlotKind::frame, first.label, {first.body.get(), first.kept});
  } else {
    if (!first.begun) moved = first.begun = writer_.put(SlotKind::large, first.label, bytes_of(first.bytes));
    while (first.begun && first.gone < first.kept) {
      const std::size_t bytes = std::min(first.kept - first.gone, piece_bytes_max);
      if (!writer_.put(SlotKind::piece, {}, {first.body.get() + first.gone, bytes})) break;
      first.gone += bytes;
      moved = true;
    }
    all = first.begun && first.gone == first.kept;
  }
  const std::size_t after = all ? 0 : first.weight();
  if (all) {
    count_sent(first.bytes);
    waiting_.pop_front();
  }
  set_queued(queued_.load(std::memory_order_relaxed) - (before - after));  // relaxed: written under the lock
  if (moved) bell_.ring_if_asleep();
  return all;
}

void Link::write_locked() noexcept {
  while (!waiting_.empty() && write_first()) {
  }
  if (writer_.is_deceived()) break_off(deceived);
}

void Link::write() noexcept {
  if (queued() == 0) return;
  const std::unique_lock hold(lock_, std::try_to_lock);
  if (hold.owns_lock() && state_ == State::up && !broken_) write_locked();
}

/// Nothing more is written. The other side sees the socket end, and so do we: by this report alone, because the peer may not.
void Link::break_off(const std::string& why) noexcept {
  if (broken_) return;
  broken_ = true;
  ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
  drop_queue();
  ::shutdown(connection_.socket.number(), SHUT_RDWR);
  try {
    reports_.add(LinkReport{this, why});
  } catch (const std::bad_alloc&) {
    // The service sees the socket's end, too.
  }
}

void Link::drop_queue() noexcept {
  waiting_.clear();
  set_queued(0);
}

Link::State Link::state() const {
  const std::lock_guard hold(lock_);
  return state_;
}

bool Link::answer(bool instead_of_ours) {
  const std::lock_guard hold(lock_);
  if (state_ != State::idle && !(state_ == State::calling && instead_of_ours)) return false;
  state_ = State::answering;
  return true;
}

bool Link::connect(Connection connection) {
  {
    const std::lock_guard hold(lock_);
    if (state_ == State::over || broken_) return false;
    connection_ = std::move(connection);
    Segment& mine = *static_cast<Segment*>(connection_.mine.data());
    const Segment& theirs = *static_cast<const Segment*>(connection_.theirs.data());
    writer_.attach(mine, theirs);
    reader_.attach(mine, theirs);
    bell_.attach(std::move(connection_.board), std::move(connection_.bell), connection_.light_fences);
    board_.store(bell_.board(), std::memory_order_release);
    // relaxed: the fence of arm() orders it
    mine.wants_room.store(waiting_.empty() ? 0 : 1, std::memory_order_relaxed);
    state_ = State::up;
    write_locked();
  }
  reports_.add(LinkReport{this, std::nullopt});
  return true;
}

void Link::give_up(const std::string& why) {
  {
    const std::lock_guard hold(lock_);
    if (broken_ || state_ == State::over) return;
    broken_ = true;
    ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
    drop_queue();
  }
  reports_.add(LinkReport{this, why});
}

bool Link::end_in_order() noexcept {
  const std::lock_guard hold(lock_);
  const bool all = waiting_.empty();
  if (state_ == State::up && !broken_ && all) {
    writer_.put_end();
    bell_.ring_if_asleep();
  }
  drop_queue();
  return all;
}

}  // namespace aplib::comm::shm
