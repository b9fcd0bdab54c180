// SPDX-License-Identifier: MIT
// The receiving half of Link: all of it runs on the polling thread.
#include <algorithm>
#include <new>
#include <utility>

#include "comm/tcp/link.hpp"
#include "comm/tcp/split.hpp"

namespace aplib::comm {
namespace {

constexpr auto counting = std::memory_order_relaxed;  // nothing else is read after a counter

iovec piece_of(std::span<std::byte> bytes) noexcept { return {bytes.data(), bytes.size()}; }

}  // namespace

std::byte* Link::Gather::large_begin(Peer from, const Label& label, std::size_t bytes) {
  std::byte* const into = receiver->large_begin(from, label, bytes);
  if (into == nullptr || bytes < Split::from_bytes) return into;
  first_left = Split::part(bytes, streams, 0).bytes;
  by_others = bytes - first_left;
  lanes_left = 0;
  left.assign(streams, {});
  for (std::size_t i = 1; i < streams; ++i) {
    const Split::Part part = Split::part(bytes, streams, i);
    left[i] = {into + part.offset, part.bytes};
    if (part.bytes != 0) ++lanes_left;
  }
  active = by_others != 0;
  return into;
}

void Link::begin_reading(Receiver& receiver) {
  if (reading_over_ || reader_) return;
  gather_.receiver = &receiver;
  gather_.streams = lanes_.size();
  // Frames of one stream need not pass through the gathering of several.
  reader_ = std::make_unique<FrameReader>(lanes_.size() == 1 ? receiver : gather_, peer_);
  const std::lock_guard hold(lock_);
  set_reading(*lanes_[0], true);
}

void Link::set_reading(Lane& lane, bool reading) noexcept {
  if (lane.reading == reading) return;
  lane.reading = reading;
  if (state_ == State::up) watch(lane);
}

/// A peer whose frames are not wanted is not read; and nobody is woken because it has sent some.
void Link::pause(bool pause) noexcept {
  paused_ = pause;
  const std::lock_guard hold(lock_);
  set_reading(*lanes_[0], !pause);
  for (std::size_t i = 1; i < lanes_.size(); ++i)
    set_reading(*lanes_[i], !pause && gather_.active && !gather_.left[i].empty());
}

bool Link::read_ahead() const noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane->reading && lane->stream->read_ahead(); });
}

bool Link::read(Receiver& receiver) {
  if (reading_over_ || !reader_) return false;
  const bool wanted = receiver.wants(peer_);
  if (wanted == paused_) pause(!wanted);
  if (!wanted) return false;

  const std::uint64_t frames = reader_->frames();
  const std::uint64_t bytes = reader_->bytes();
  const bool was_large = !reader_->room_in_body().empty();
  std::string why;
  Reading reading = Reading::nothing;
  try {
    if (!gather_.active || gather_.first_left != 0) reading = read_first(why);
    for (std::size_t i = 1; gather_.active && reading != Reading::over && i < lanes_.size(); ++i)
      if (!gather_.left[i].empty()) reading = read_lane(i, why);
    if (gather_.active && gather_.first_left == 0 && gather_.lanes_left == 0) {
      gather_.active = false;
      {
        const std::lock_guard hold(lock_);
        set_reading(*lanes_[0], true);
      }
      if (!reader_->filled(gather_.by_others)) reading = Reading::over;
    }
  } catch (const std::bad_alloc&) {
    why = "no memory here to receive";
    reading = Reading::over;
  }
  frames_received_.store(reader_->frames(), counting);
  bytes_received_.store(reader_->bytes(), counting);
  const bool called = reading == Reading::something ||  // perhaps only a part of a large body
                      reader_->frames() != frames || reader_->bytes() != bytes ||
                      was_large != !reader_->room_in_body().empty();
  if (!reader_->refusal().empty()) why = reader_->refusal();
  const bool in_order = reader_->ended_in_order() && reader_->refusal().empty();
  if (reading != Reading::over && !in_order && why.empty()) return called;
  finish(receiver, in_order ? std::nullopt : std::optional(why));
  return called || !in_order;
}

Link::Reading Link::read_first(std::string& why) {
  const FrameReader::Room room = reader_->room();
  std::array<iovec, 2> pieces;
  std::size_t count = 0;
  if (!room.body.empty()) {
    pieces[count++] = piece_of(gather_.active ? room.body.first(gather_.first_left) : room.body);
  }
  if (!gather_.active) pieces[count++] = piece_of(room.buffer);
  TcpStream& stream = *lanes_[0]->stream;
  const TcpStream::Result result = stream.read(std::span(pieces).first(count));
  const Reading reading = judge(stream, result, why);
  if (reading != Reading::something) return reading;
  reads_.store(reads_.load(counting) + 1, counting);
  const bool was_active = gather_.active;
  if (!reader_->filled(result.bytes)) return Reading::over;
  if (was_active) {
    gather_.first_left -= result.bytes;
  } else if (gather_.active) {
    // A split body has begun: what lay behind its header belongs to the first part.
    gather_.first_left -= gather_.first_left + gather_.by_others - reader_->room_in_body().size();
    const std::lock_guard hold(lock_);
    for (std::size_t i = 1; i < lanes_.size(); ++i) set_reading(*lanes_[i], !gather_.left[i].empty());
  }
  if (gather_.active && gather_.first_left == 0) {
    // Nothing is read from the first lane until the others have delivered: so nobody is woken for it.
    const std::lock_guard hold(lock_);
    set_reading(*lanes_[0], false);
  }
  return Reading::something;
}

Link::Reading Link::read_lane(std::size_t number, std::string& why) {
  std::span<std::byte>& left = gather_.left[number];
  const iovec piece = piece_of(left);
  TcpStream& stream = *lanes_[number]->stream;
  const TcpStream::Result result = stream.read({&piece, 1});
  const Reading reading = judge(stream, result, why);
  if (reading != Reading::something) return reading;
  reads_.store(reads_.load(counting) + 1, counting);
  left = left.subspan(result.bytes);
  if (!left.empty()) return reading;
  --gather_.lanes_left;
  const std::lock_guard hold(lock_);
  set_reading(*lanes_[number], false);
  return reading;
}

Link::Reading Link::judge(TcpStream& stream, const TcpStream::Result& result, std::string& why) const {
  switch (result.kind) {
    case TcpStream::Kind::moved:
      return Reading::something;
    case TcpStream::Kind::not_now:
      return Reading::nothing;
    case TcpStream::Kind::end:
      why = "connection closed by peer: its process has ended";
      return Reading::over;
    case TcpStream::Kind::failed:
      why = stream.failure();
      return Reading::over;
  }
  return Reading::nothing;
}

void Link::lose(Receiver& receiver, const std::string& why) {
  // What came before the end still counts, and it may have been an ordered one.
  constexpr int reads_max = 1024;
  for (int i = 0; i < reads_max && !reading_over_ && reader_; ++i) {
    const std::uint64_t reads = reads_.load(counting);
    read(receiver);
    if (reads_.load(counting) == reads) break;
  }
  if (!reading_over_) finish(receiver, why);
}

/// Nothing is read or written any more. Without a reason: the peer has ended in order.
void Link::finish(Receiver& receiver, const std::optional<std::string>& why) {
  reading_over_ = true;
  std::vector<std::unique_ptr<Lane>> ended;
  {
    const std::lock_guard hold(lock_);
    state_ = State::over;
    drop_queues();
    ended = std::exchange(lanes_, {});
  }
  ended.clear();
  if (reader_) reader_->end();
  if (why) receiver.peer_lost(peer_, *why);
}

}  // namespace aplib::comm
