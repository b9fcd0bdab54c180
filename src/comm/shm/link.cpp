// SPDX-License-Identifier: MIT
// The sending half of a link.
#include "comm/shm/link.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "arch/cpu.hpp"

namespace aplib::comm::shm {
namespace {

constexpr const char* deceived = "it writes nonsense into shared memory";
constexpr std::uint32_t spins_per_clock_look = 64;

std::span<const std::byte> bytes_of(const std::uint64_t& number) { return std::as_bytes(std::span(&number, 1)); }

}  // namespace

bool Link::send(const Label& label, std::span<const std::byte> body) {
  std::unique_lock hold(lock_);
  if (state_locked() == State::up && waiting_.empty()) [[likely]] {
    if (broken_) return false;
    if (body.size() >= Module::large_from_bytes) {
      send_large(label, body);
      return false;
    }
    if (writer_.put(EntryKind::frame, label, body)) [[likely]] {
      count_sent(body.size());
      bell_.ring_if_asleep();
      return false;
    }
  }
  return send_later(hold, label, body);
}

// The thread that joins us to the peer needs the lock, and the peer does not wait for it as long as a large copy takes.
bool Link::send_later(std::unique_lock<SpinLock>& hold, const Label& label, std::span<const std::byte> body) {
  std::unique_ptr<std::byte[]> copy;
  if (state_locked() != State::up) {
    hold.unlock();
    copy = copy_of(body);
    hold.lock();
  }
  if (state_locked() == State::over || broken_) return false;
  if (state_locked() == State::up) {
    keep(label, body, body.size(), false);
    write_locked();
    return false;
  }
  keep_early(label, std::move(copy), body.size());
  set_queued(early_bytes());
  return state_locked() == State::idle && set_state(State::calling);
}

void Link::count_sent(std::uint64_t bytes) noexcept {
  // relaxed: written under the lock, read as a snapshot
  frames_sent_.store(frames_sent_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

/// Sends piece by piece from the caller's memory, while the peer takes pieces out, so that both copy at the same time.
void Link::send_large(const Label& label, std::span<const std::byte> body) {
  if (!writer_.put(EntryKind::large, label, bytes_of(body.size()))) {
    keep(label, body, body.size(), false);
    return write_locked();
  }
  std::span<const std::byte> rest = body;
  std::uint32_t spins = 0;
  std::chrono::steady_clock::time_point since{};
  while (!rest.empty()) {
    const std::span<const std::byte> piece = rest.first(std::min(rest.size(), piece_bytes_max));
    if (writer_.put(EntryKind::piece, {}, piece)) {
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

/// Writes as much of the oldest frame as there is room for. Returns whether that is all of it.
bool Link::write_first() {
  Waiting& first = waiting_.front();
  const std::size_t before = first.weight();
  bool moved = false;
  bool all = false;
  if (first.bytes < Module::large_from_bytes) {
    all = moved = writer_.put(EntryKind::frame, first.label, {first.body.get(), first.kept});
  } else {
    if (!first.begun) moved = first.begun = writer_.put(EntryKind::large, first.label, bytes_of(first.bytes));
    while (first.begun && first.gone < first.kept) {
      const std::size_t bytes = std::min(first.kept - first.gone, piece_bytes_max);
      if (!writer_.put(EntryKind::piece, {}, {first.body.get() + first.gone, bytes})) break;
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
  if (hold.owns_lock() && state_locked() == State::up && !broken_) write_locked();
}

/// Shuts the socket down, so that both sides see its end.
void Link::stop_writing() noexcept {
  ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
  drop_queue();
  if (connection_.socket) ::shutdown(connection_.socket.get(), SHUT_RDWR);
}

void Link::drop_queue() noexcept {
  drop_early();
  waiting_.clear();
  set_queued(0);
}

Link::State Link::state() const {
  const std::lock_guard hold(lock_);
  return state_locked();
}

Link::Answer Link::take_call(Peer self) {
  const std::lock_guard hold(lock_);
  return comm::Link::take_call(self);
}

bool Link::connect(Connection connection) {
  const std::lock_guard hold(lock_);
  if (state_locked() == State::over || broken_) return false;
  connection_ = std::move(connection);
  Segment& mine = *static_cast<Segment*>(connection_.mine.data());
  const Segment& theirs = *static_cast<const Segment*>(connection_.theirs.data());
  writer_.attach(mine, theirs);
  reader_.attach(mine, theirs);
  bell_.attach(std::move(connection_.block), std::move(connection_.bell));
  block_.store(bell_.block(), std::memory_order_release);
  // relaxed: the fence of arm() orders it
  mine.wants_room.store(early_bytes() == 0 ? 0 : 1, std::memory_order_relaxed);
  if (!come_up()) return false;
  try {
    while (std::optional<EarlyFrame> frame = take_early()) {
      // Their bodies are here already, and wait where they are.
      Waiting& kept = waiting_.emplace_back();
      kept.label = frame->label;
      kept.bytes = kept.kept = frame->bytes;
      kept.body = std::move(frame->body);
    }
  } catch (const std::bad_alloc&) {
    break_off("there was no memory to queue what was sent before it was joined");
    return true;
  }
  std::size_t bytes = 0;
  for (const Waiting& kept : waiting_) bytes += kept.weight();
  set_queued(bytes);
  write_locked();
  return true;
}

void Link::give_up(const std::string& why) noexcept {
  const std::lock_guard hold(lock_);
  break_off(why);
}

bool Link::end_in_order() noexcept {
  const std::lock_guard hold(lock_);
  const bool all = waiting_.empty();
  if (state_locked() == State::up && !broken_ && all) {
    writer_.put_end();
    bell_.ring_if_asleep();
  }
  drop_queue();
  return all;
}

// The receiving half of a link, and its end.

bool Link::has_work() noexcept {
  // acquire: the reader is attached. What is not wanted is nothing to wake up for.
  if (reading_.load(std::memory_order_acquire) && reader_.has_next() && !unwanted_.load(std::memory_order_relaxed))
    return true;
  if (queued() == 0) return false;
  const std::unique_lock hold(lock_, std::try_to_lock);
  if (!hold.owns_lock()) return true;  // another thread writes: look again
  if (state_locked() != State::up || broken_ || waiting_.empty()) return false;
  const Waiting& first = waiting_.front();
  const bool piece = first.bytes >= Module::large_from_bytes && first.begun;
  const bool head = first.bytes >= Module::large_from_bytes && !first.begun;
  return writer_.has_room(head    ? sizeof first.bytes
                          : piece ? std::min(first.kept - first.gone, piece_bytes_max)
                                  : first.kept);
}

void Link::settle() noexcept {
  if (!reader_.settle()) return;
  const Segment& theirs = *static_cast<const Segment*>(connection_.theirs.data());
  // The fence in ring_if_asleep() orders the look at both words behind what was just stored; who wants room and
  // sleeps has set this first.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (theirs.wants_room.load(std::memory_order_relaxed) != 0) [[unlikely]]
    bell_.ring_if_asleep();
}

bool Link::read_some(Receiver& receiver) {
  if (reading_over_) return false;
  const bool wanted = receiver.wants(peer());
  if (unwanted_.load(std::memory_order_relaxed) == wanted)
    unwanted_.store(!wanted, std::memory_order_relaxed);  // relaxed: a hint for who goes to sleep
  if (!wanted) return false;
  std::size_t bytes = 0;
  std::string why;
  for (std::uint32_t frames = 0; frames < read_frames_max; ++frames) {
    EntryCopy entry;
    reader_.copy(entry);
    if (entry.kind() == EntryKind::end) {
      finish(receiver,
             large_.active ? std::optional<std::string>("its stream ends in the middle of a frame") : std::nullopt);
      return true;
    }
    const bool in_large = large_.active;
    if (!take(receiver, entry, why)) {
      finish(receiver, why);
      return true;
    }
    reader_.pop(entry.bytes());
    bytes += entry.bytes();
    if (reader_.owes() || in_large) settle();
    if (bytes >= (in_large ? read_bytes_max_large : read_bytes_max) || !reader_.has_next()) break;
  }
  settle();
  return true;
}

/// One entry. False: it makes no sense, or its body is refused.
bool Link::take(Receiver& receiver, const EntryCopy& entry, std::string& why) {
  const std::size_t bytes = entry.bytes();
  // relaxed: the polling thread's; others read a snapshot
  const auto count_received = [this](std::uint64_t body) {
    frames_received_.store(frames_received_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    bytes_received_.store(bytes_received_.load(std::memory_order_relaxed) + body, std::memory_order_relaxed);
  };
  if (entry.kind() == EntryKind::frame && !large_.active && bytes < Module::large_from_bytes) [[likely]] {
    const std::byte* body = entry.inline_body;
    if (bytes > inline_bytes_max) {
      // The body is copied, although it could be used in place, because checked bytes must not change any more.
      if (!scratch_) scratch_ = std::make_unique_for_overwrite<std::byte[]>(Module::large_from_bytes);
      copy_long(scratch_.get(), reader_.body(bytes), bytes);
      body = scratch_.get();
    }
    count_received(bytes);
    receiver.frame(peer(), entry.label, {body, bytes});
    return true;
  }
  if (entry.kind() == EntryKind::large && !large_.active && bytes == sizeof(std::uint64_t)) {
    std::uint64_t length = 0;
    std::memcpy(&length, entry.inline_body, sizeof length);
    if (length >= Module::large_from_bytes && length <= Module::body_bytes_max) {
      std::byte* const into = receiver.large_begin(peer(), entry.label, length);
      if (into == nullptr) {
        why = fmt::format("a frame of {} bytes was refused here", length);
        return false;
      }
      large_ = {entry.label, into, length, 0, true};
      return true;
    }
  }
  if (entry.kind() == EntryKind::piece && large_.active && bytes != 0 && bytes <= piece_bytes_max &&
      bytes <= large_.bytes - large_.filled) {
    copy_long(large_.into + large_.filled, bytes > inline_bytes_max ? reader_.body(bytes) : entry.inline_body, bytes);
    large_.filled += bytes;
    if (large_.filled == large_.bytes) {
      large_.active = false;
      count_received(large_.bytes);
      receiver.large_end(peer(), large_.label, large_.bytes, true);
    }
    return true;
  }
  why = fmt::format("it writes nonsense into shared memory: an entry of kind {} with {} bytes {} a large frame",
                    static_cast<unsigned>(entry.kind()), bytes, large_.active ? "inside" : "outside");
  return false;
}

bool Link::lose(Receiver& receiver, const std::string& why) {
  if (reading_over_) return true;
  if (reading_.load(std::memory_order_relaxed)) {  // relaxed: ours
    // The most that there can be when nobody writes any more.
    constexpr std::size_t rounds = 2 + bodies_bytes / read_bytes_max;
    for (std::size_t i = 0; i < rounds && !reading_over_ && reader_.has_next(); ++i) {
      read_some(receiver);
      if (unwanted_.load(std::memory_order_relaxed)) return false;  // relaxed: ours
    }
  }
  if (!reading_over_) finish(receiver, why);
  return true;
}

/// Nothing: an ordered end.
void Link::finish(Receiver& receiver, const std::optional<std::string>& why) {
  reading_over_ = true;
  reading_.store(false, std::memory_order_relaxed);  // relaxed: a hint for who goes to sleep
  {
    const std::lock_guard hold(lock_);
    set_state(State::over);
    ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
    drop_queue();
    if (connection_.socket) ::shutdown(connection_.socket.get(), SHUT_RDWR);
  }
  if (std::exchange(large_.active, false)) receiver.large_end(peer(), large_.label, large_.bytes, false);
  if (why) receiver.peer_lost(peer(), *why);
}

void Link::drain(Receiver& receiver) {
  if (std::exchange(large_.active, false)) receiver.large_end(peer(), large_.label, large_.bytes, false);
  if (!reading_.load(std::memory_order_relaxed)) return;  // relaxed: ours
  for (std::uint32_t i = 0; i < entry_count && reader_.has_next(); ++i) {
    EntryCopy entry;
    reader_.copy(entry);
    if (entry.kind() == EntryKind::end || entry.bytes() > piece_bytes_max) {
      reading_.store(false, std::memory_order_relaxed);  // relaxed: ours
      const std::lock_guard hold(lock_);
      set_state(State::over);
      ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
      drop_queue();
      return;
    }
    reader_.pop(entry.bytes());
    settle();
  }
}

void Link::close(Receiver* receiver) noexcept {
  {
    const std::lock_guard hold(lock_);
    set_state(State::over);
    ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
    drop_queue();
    connection_.socket.reset();
  }
  reading_over_ = true;
  reading_.store(false, std::memory_order_relaxed);  // relaxed: nobody else is here
  if (std::exchange(large_.active, false) && receiver != nullptr)
    receiver->large_end(peer(), large_.label, large_.bytes, false);
}

void Link::count(Traffic& into) const noexcept {
  // relaxed: a snapshot
  into.frames_sent += frames_sent_.load(std::memory_order_relaxed);
  into.bytes_sent += bytes_sent_.load(std::memory_order_relaxed);
  into.frames_received += frames_received_.load(std::memory_order_relaxed);
  into.bytes_received += bytes_received_.load(std::memory_order_relaxed);
  into.system_calls += bell_.rings();
}

}  // namespace aplib::comm::shm
