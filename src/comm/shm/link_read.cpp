// SPDX-License-Identifier: MIT
// The receiving half of a link, and its end.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/shm/link.hpp"

namespace aplib::comm::shm {

bool Link::has_work() noexcept {
  // acquire: the reader is attached. What is not wanted is nothing to wake up for.
  if (reading_.load(std::memory_order_acquire) && reader_.has_next() && !unwanted_.load(std::memory_order_relaxed))
    return true;
  if (queued() == 0) return false;
  const std::unique_lock hold(lock_, std::try_to_lock);
  if (!hold.owns_lock()) return true;  // somebody is at it: look again
  if (state_ != State::up || broken_ || waiting_.empty()) return false;
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
  // The fence in ring_if_asleep() orders the look at both words behind what was just stored; who wants room and sleeps has set this first.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (theirs.wants_room.load(std::memory_order_relaxed) != 0) [[unlikely]]
    bell_.ring_if_asleep();
}

bool Link::read_some(Receiver& receiver) {
  if (reading_over_) return false;
  const bool wanted = receiver.wants(peer_);
  if (unwanted_.load(std::memory_order_relaxed) == wanted)
    unwanted_.store(!wanted, std::memory_order_relaxed);  // relaxed: a hint for who goes to sleep
  if (!wanted) return false;
  std::size_t bytes = 0;
  std::string why;
  for (std::uint32_t frames = 0; frames < read_frames_max; ++frames) {
    SlotCopy slot;
    reader_.copy(slot);
    if (slot.kind() == SlotKind::end) {
      finish(receiver,
             large_.active ? std::optional<std::string>("its stream ends in the middle of a frame") : std::nullopt);
      return true;
    }
    const bool in_large = large_.active;
    if (!take(receiver, slot, why)) {
      finish(receiver, why);
      return true;
    }
    reader_.pop(slot.bytes());
    bytes += slot.bytes();
    if (reader_.owes() || in_large) settle();
    if (bytes >= (in_large ? read_bytes_max_large : read_bytes_max) || !reader_.has_next()) break;
  }
  settle();
  return true;
}

/// One slot. False: it makes no sense, or its body is refused.
bool Link::take(Receiver& receiver, const SlotCopy& slot, std::string& why) {
  const std::size_t bytes = slot.bytes();
  // relaxed: the polling thread's; others read a snapshot
  const auto count_received = [this](std::uint64_t body) {
    frames_received_.store(frames_received_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    bytes_received_.store(bytes_received_.load(std::memory_order_relaxed) + body, std::memory_order_relaxed);
  };
  if (slot.kind() == SlotKind::frame && !large_.active && bytes < Module::large_from_bytes) [[likely]] {
    const std::byte* body = slot.inline_body;
    if (bytes > inline_bytes_max) {
      // Copied, although it could be used where it is: what is checked must not change any more.
      if (!scratch_) scratch_ = std::make_unique_for_overwrite<std::byte[]>(Module::large_from_bytes);
      std::memcpy(scratch_.get(), reader_.body(bytes), bytes);
      body = scratch_.get();
    }
    count_received(bytes);
    receiver.frame(peer_, slot.label, {body, bytes});
    return true;
  }
  if (slot.kind() == SlotKind::large && !large_.active && bytes == sizeof(std::uint64_t)) {
    std::uint64_t length = 0;
    std::memcpy(&length, slot.inline_body, sizeof length);
    if (length >= Module::large_from_bytes && length <= Module::body_bytes_max) {
      std::byte* const into = receiver.large_begin(peer_, slot.label, length);
      if (into == nullptr) {
        why = fmt::format("a frame of {} bytes was refused here", length);
        return false;
      }
      large_ = {slot.label, into, length, 0, true};
      return true;
    }
  }
  if (slot.kind() == SlotKind::piece && large_.active && bytes != 0 && bytes <= piece_bytes_max &&
      bytes <= large_.bytes - large_.filled) {
    std::memcpy(large_.into + large_.filled, bytes > inline_bytes_max ? reader_.body(bytes) : slot.inline_body, bytes);
    large_.filled += bytes;
    if (large_.filled == large_.bytes) {
      large_.active = false;
      count_received(large_.bytes);
      receiver.large_end(peer_, large_.label, large_.bytes, true);
    }
    return true;
  }
  why = fmt::format("it writes nonsense into shared memory: a slot of kind {} with {} bytes {} a large frame",
                    static_cast<unsigned>(slot.kind()), bytes, large_.active ? "inside" : "outside");
  return false;
}

bool Link::lose(Receiver& receiver, const std::string& why) {
  if (reading_over_) return true;
  if (reading_.load(std::memory_order_relaxed)) {  // relaxed: ours
    // As much as there can be when nobody writes any more.
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
    state_ = State::over;
    ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
    drop_queue();
    if (connection_.socket) ::shutdown(connection_.socket.number(), SHUT_RDWR);
  }
  if (std::exchange(large_.active, false)) receiver.large_end(peer_, large_.label, large_.bytes, false);
  if (why) receiver.peer_lost(peer_, *why);
}

void Link::drain(Receiver& receiver) {
  if (std::exchange(large_.active, false)) receiver.large_end(peer_, large_.label, large_.bytes, false);
  if (!reading_.load(std::memory_order_relaxed)) return;  // relaxed: ours
  for (std::uint32_t i = 0; i < slot_count && reader_.has_next(); ++i) {
    SlotCopy slot;
    reader_.copy(slot);
    if (slot.kind() == SlotKind::end || slot.bytes() > piece_bytes_max) {
      reading_.store(false, std::memory_order_relaxed);  // relaxed: ours
      const std::lock_guard hold(lock_);
      state_ = State::over;
      ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
      drop_queue();
      return;
    }
    reader_.pop(slot.bytes());
    settle();
  }
}

void Link::close(Receiver* receiver) noexcept {
  {
    const std::lock_guard hold(lock_);
    state_ = State::over;
    ended_.store(true, std::memory_order_relaxed);  // relaxed: noticed sooner or later
    drop_queue();
    connection_.socket.reset();
  }
  reading_over_ = true;
  reading_.store(false, std::memory_order_relaxed);  // relaxed: nobody else is here
  if (std::exchange(large_.active, false) && receiver != nullptr)
    receiver->large_end(peer_, large_.label, large_.bytes, false);
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
