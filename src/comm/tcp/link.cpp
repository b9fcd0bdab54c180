// SPDX-License-Identifier: MIT
#include "comm/tcp/link.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "arch/cpu.hpp"
#include "base/os/time.hpp"
#include "comm/frame.hpp"

namespace aplib::comm::tcp {
namespace {

bool add(int epoll, int socket, std::uint32_t events, void* data) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = data;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) == 0;
}

}  // namespace

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  // The bells are marked by their own addresses, which differ from those of links.
  if (epoll_ && add(epoll_.get(), wake_.descriptor(), EPOLLIN, &wake_) &&
      add(epoll_.get(), report_.get(), EPOLLIN, &report_))
    return;
  throw Error(Errc::exhausted,
              fmt::format("tcp: cannot make the descriptors it waits on: {}; raise the limit of open files (ulimit -n)",
                          std::generic_category().message(errno)));
}

bool Poller::watch(int socket, Link* link, std::uint32_t before, std::uint32_t now) noexcept {
  if (before == now) return true;
  epoll_event event{};
  event.events = now;
  event.data.ptr = link;
  const int operation = now == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  return ::epoll_ctl(epoll_.get(), operation, socket, &event) == 0;
}

std::size_t Poller::ready(std::span<Link*> links) noexcept {
  constexpr std::size_t events_max = 64;
  std::array<epoll_event, events_max> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(std::min(events_max, links.size())), 0);
  std::size_t filled = 0;
  for (int i = 0; i < count; ++i) {
    void* const who = events[static_cast<std::size_t>(i)].data.ptr;
    if (who != &wake_ && who != &report_) links[filled++] = static_cast<Link*>(who);
  }
  return filled;
}

void Poller::wait(std::optional<std::chrono::nanoseconds> timeout) noexcept {
  constexpr int events_max = 16;
  std::array<epoll_event, events_max> events;
  const timespec time = os::timespec_of(timeout.value_or(std::chrono::nanoseconds(0)));
  if (::epoll_pwait2(epoll_.get(), events.data(), events_max, timeout ? &time : nullptr, nullptr) < 0 &&
      errno == ENOSYS) {  // Linux before 5.11
    const auto rounded = timeout ? std::chrono::ceil<std::chrono::milliseconds>(*timeout) : std::chrono::milliseconds{};
    constexpr std::chrono::milliseconds longest{1'000'000'000};
    ::epoll_wait(epoll_.get(), events.data(), events_max,
                 timeout ? static_cast<int>(std::min(rounded, longest).count()) : -1);
  }
}

void Poller::add_writer(Link* link) noexcept {
  const std::lock_guard hold(lock_);
  link->next_writer_ = nullptr;
  (last_writer_ != nullptr ? last_writer_->next_writer_ : first_writer_) = link;
  last_writer_ = link;
  // seq_cst: who is about to sleep sees it, or is seen by write(); the lock orders the list
  writer_count_.fetch_add(1);
}

Link* Poller::take_writer() noexcept {
  const std::lock_guard hold(lock_);
  Link* const link = first_writer_;
  if (link == nullptr) return nullptr;
  first_writer_ = link->next_writer_;
  if (first_writer_ == nullptr) last_writer_ = nullptr;
  writer_count_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: under the lock, else a hint
  return link;
}

namespace {

constexpr auto counting = std::memory_order_relaxed;  // nothing else is read after a counter

/// One writer at a time (the link's lock, or the polling thread): no locked instruction.
void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) noexcept {
  counter.store(counter.load(counting) + more, counting);
}

std::span<const std::byte> behind(std::span<const std::byte> bytes, std::size_t& count) noexcept {
  const std::size_t part = std::min(bytes.size(), count);
  count -= part;
  return bytes.subspan(part);
}

iovec piece_of(std::span<std::byte> bytes) noexcept { return {bytes.data(), bytes.size()}; }

}  // namespace

// The sending half.

bool Link::send(const Label& label, std::span<const std::byte> body) {
  std::array<std::byte, frame_header_bytes> header;
  encode({label, body.size()}, header);
  const std::lock_guard hold(lock_);
  if (state_locked() == State::over || broken_) return false;
  if (state_locked() != State::up) {
    keep_early(label, body);
    note_queued();
  } else {
    send_connected(header, body);
  }
  add(frames_sent_, 1);
  add(bytes_sent_, body.size());
  return state_locked() == State::idle && set_state(State::calling);
}

void Link::send_connected(std::span<const std::byte, frame_header_bytes> header, std::span<const std::byte> body) {
  Lane& lane = *lanes_[0];
  if (body.size() < hold_below_bytes) {
    const bool alone = lane.out.empty() && cycles() - last_write_ >= hold_within_cycles;
    if (!alone) {
      lane.out.append(header, body);
      if (!lane.full && lane.out.bytes() >= held_bytes_max) write_lane(lane);
      note_queued();
      return;
    }
    constexpr std::size_t together_max = 512;
    if (body.size() <= together_max) {  // one piece is cheaper for the system than two
      std::array<std::byte, frame_header_bytes + together_max> together;
      std::memcpy(together.data(), header.data(), header.size());
      if (!body.empty()) std::memcpy(together.data() + header.size(), body.data(), body.size());
      Outgoing part{&lane, std::span(together).first(header.size() + body.size()), {}};
      push({&part, 1});
    } else {
      Outgoing part{&lane, header, body};
      push({&part, 1});
    }
    // The clock runs from the end of the write, which may itself take longer than frames are held. The receiver then
    // has the frame already, and loses nothing.
    last_write_ = cycles();
    return;
  }
  if (lanes_.size() == 1 || body.size() < Split::from_bytes) {
    Outgoing part{&lane, header, body};
    push({&part, 1});
    return;
  }
  std::vector<Outgoing> parts;
  parts.reserve(lanes_.size());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Split::Part part = Split::part(body.size(), lanes_.size(), i);
    parts.push_back(
        {lanes_[i].get(), i == 0 ? header : std::span<const std::byte>(), body.subspan(part.offset, part.bytes)});
  }
  push(parts);
}

/// Sends the parts from where they lie, each behind the bytes that are queued on its lane, while the system takes them,
/// and a little longer. Then copies the rest.
void Link::push(std::span<Outgoing> parts) {
  Clock::time_point stuck_since{};
  while (true) {
    bool moved = false;
    std::size_t left = 0;
    for (Outgoing& part : parts) {
      if (part.bytes() == 0) continue;
      moved |= push_some(part);
      if (broken_) return;
      left += part.bytes();
    }
    if (left == 0) return note_queued();
    if (moved) {
      stuck_since = {};
      continue;
    }
    if (left < patience_from_bytes) break;
    const Clock::time_point now = Clock::now();
    if (stuck_since == Clock::time_point{}) stuck_since = now;
    if (now - stuck_since >= patience) break;
    // The other side empties the system's buffers now, and may need the lock of this very socket.
    constexpr int rounds = 32;
    for (int i = 0; i < rounds; ++i) cpu_relax();
  }
  try {
    for (const Outgoing& part : parts) {
      if (part.bytes() == 0) continue;
      part.lane->out.append(part.header, part.body);
      set_full(*part.lane, true);
    }
  } catch (const std::bad_alloc&) {
    // A part of the frame may have gone out. The rest never will.
    break_off("no memory here for what it has not taken");
    throw;
  }
  note_queued();
}

/// Makes one write of the lane's queue and then the part, from which the bytes sent are removed. Returns whether any
/// went out.
bool Link::push_some(Outgoing& part) noexcept {
  constexpr std::size_t queued_pieces_max = 14;
  std::array<iovec, queued_pieces_max + 2> pieces;
  OutQueue& out = part.lane->out;
  std::size_t count = out.peek(std::span(pieces).first(queued_pieces_max));
  std::size_t covered = 0;
  for (std::size_t i = 0; i < count; ++i) covered += pieces[i].iov_len;
  if (covered == out.bytes()) {
    for (const std::span<const std::byte> bytes : {part.header, part.body})
      if (!bytes.empty()) pieces[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  }
  const Stream::Result result = part.lane->stream->write(std::span(pieces).first(count));
  add(writes_, 1);
  if (result.kind == Stream::Kind::failed) break_off([&] { return part.lane->stream->failure(); });
  if (result.kind != Stream::Kind::moved) return false;
  std::size_t bytes = result.bytes - out.remove(result.bytes);
  part.header = behind(part.header, bytes);
  part.body = behind(part.body, bytes);
  if (part.bytes() == 0 && part.lane->full) set_full(*part.lane, false);
  return true;
}

void Link::write_lane(Lane& lane) noexcept {
  constexpr std::size_t pieces_max = 16;
  std::array<iovec, pieces_max> pieces;
  while (!lane.out.empty()) {
    const std::size_t count = lane.out.peek(pieces);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) bytes += pieces[i].iov_len;
    const Stream::Result result = lane.stream->write(std::span(pieces).first(count));
    add(writes_, 1);
    if (result.kind == Stream::Kind::failed) return break_off([&] { return lane.stream->failure(); });
    if (result.kind != Stream::Kind::moved) return set_full(lane, true);
    lane.out.remove(result.bytes);
    last_write_ = cycles();
    if (result.bytes < bytes) return set_full(lane, true);
  }
  set_full(lane, false);
}

void Link::write(bool also_full) noexcept {
  // A thread that holds the lock for long is sending a large frame, behind the queue. The link stays listed.
  constexpr int tries = 64;
  std::unique_lock hold(lock_, std::try_to_lock);
  for (int i = 0; i < tries && !hold.owns_lock(); ++i) {
    cpu_relax();
    hold.try_lock();
  }
  if (!hold.owns_lock()) {
    poller_.add_writer(this);
    if (poller_.someone_sleeps()) poller_.wake();  // it may have looked while the link was not listed
    return;
  }
  writes_later_ = false;
  if (state_locked() != State::up || broken_) return;
  for (const auto& lane : lanes_) {
    if (!lane->out.empty() && (also_full || !lane->full)) write_lane(*lane);
    if (broken_) return;
  }
  note_queued();
}

/// Call after every change of the queue.
void Link::note_queued() noexcept {
  std::size_t bytes = early_bytes();
  for (const auto& lane : lanes_) bytes += lane->out.bytes();
  queued_.store(bytes, std::memory_order_relaxed);
  if (bytes == 0 || writes_later_ || state_locked() != State::up) return;
  writes_later_ = true;
  poller_.add_writer(this);
}

void Link::set_full(Lane& lane, bool full) noexcept {
  lane.full = full;
  watch(lane);
}

void Link::watch(Lane& lane) noexcept {
  const std::uint32_t wanted =
      (lane.reading && !lane.polled ? std::uint32_t{EPOLLIN} : 0U) | (lane.full ? std::uint32_t{EPOLLOUT} : 0U);
  if (poller_.watch(lane.stream->socket(), this, lane.watched, wanted)) {
    lane.watched = wanted;
  } else {
    // Nothing would wake anybody for it any more.
    break_off([reason = errno] {
      return "its connection cannot be watched here: " + std::generic_category().message(reason);
    });
  }
}

/// The first lane: the others are read only while a body comes by them.
void Link::set_polled(bool polled) noexcept {
  if (lanes_.empty() || lanes_[0]->polled == polled) return;
  lanes_[0]->polled = polled;
  poller_.count_unwatched(polled ? 1 : -1);
  if (state_locked() == State::up) watch(*lanes_[0]);
}

void Link::unwatch() noexcept {
  if (poller_.someone_sleeps()) return;
  const std::lock_guard hold(lock_);
  set_polled(state_locked() == State::up && !broken_);
  if (poller_.someone_sleeps()) set_polled(false);  // see Poller
}

void Link::watch_again() noexcept {
  finds_.store(0, std::memory_order_relaxed);  // relaxed: a measure
  const std::lock_guard hold(lock_);
  set_polled(false);
}

void Link::drop_queues() noexcept {
  drop_early();
  for (const auto& lane : lanes_) {
    lane->out.clear();
    lane->full = false;
  }
  queued_.store(0, std::memory_order_relaxed);
}

/// Earlier bytes of the peer may still lie in the sockets. The polling thread takes them, and then ends the link.
void Link::stop_writing() noexcept {
  for (const auto& lane : lanes_) {
    lane->full = false;
    watch(*lane);
  }
  drop_queues();
}

Link::State Link::state() const {
  const std::lock_guard hold(lock_);
  return state_locked();
}

std::size_t Link::streams() const {
  const std::lock_guard hold(lock_);
  return lanes_.size();
}

void Link::count(Traffic& into) const noexcept {
  into.frames_sent += frames_sent_.load(counting);
  into.bytes_sent += bytes_sent_.load(counting);
  into.frames_received += frames_received_.load(counting);
  into.bytes_received += bytes_received_.load(counting);
  into.system_calls += writes_.load(counting) + reads_.load(counting);
}

Link::Answer Link::take_call(Peer self) {
  const std::lock_guard hold(lock_);
  return comm::Link::take_call(self);
}

bool Link::connect(std::vector<std::unique_ptr<Stream>> streams) {
  std::vector<std::unique_ptr<Lane>> lanes;
  for (auto& stream : streams) {
    lanes.push_back(std::make_unique<Lane>());
    lanes.back()->stream = std::move(stream);
  }
  const std::lock_guard hold(lock_);
  if (state_locked() == State::over || broken_) return false;
  lanes_ = std::move(lanes);
  if (!come_up()) return false;
  try {
    while (!broken_) {
      const std::optional<EarlyFrame> frame = take_early();
      if (!frame) break;
      std::array<std::byte, frame_header_bytes> header;
      encode({frame->label, frame->bytes}, header);
      send_connected(header, frame->span());
    }
  } catch (const std::bad_alloc&) {
    break_off("no memory here for what it has not taken");
  }
  if (broken_) return true;
  for (const auto& lane : lanes_)
    if (!lane->full) write_lane(*lane);
  if (!broken_) note_queued();
  return true;
}

void Link::give_up(const std::string& why) noexcept {
  const std::lock_guard hold(lock_);
  break_off(why);
}

bool Link::check_answers(std::chrono::milliseconds timeout) {
  const std::lock_guard hold(lock_);
  const std::uint64_t frames = frames_sent_.load(counting);
  bool active = frames != frames_at_check_;
  frames_at_check_ = frames;
  if (state_locked() != State::up || broken_) return active;
  const Clock::time_point now = Clock::now();
  for (const auto& lane : lanes_) {
    if (lane->stream->unacknowledged() <= 0) {
      lane->unanswered_since.reset();
      continue;
    }
    active = true;
    if (!lane->unanswered_since) lane->unanswered_since = now;
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(lane->stream->socket(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) continue;
    // A host whose program does not read still answers, namely that its window is closed.
    if (now - *lane->unanswered_since >= timeout && std::chrono::milliseconds(info.tcpi_last_ack_recv) >= timeout) {
      break_off([&] { return "no answer for " + std::to_string(timeout.count() / 1000) + " s"; });
      return active;
    }
  }
  return active;
}

bool Link::end_in_order() noexcept {
  const std::lock_guard hold(lock_);
  if (state_locked() != State::up || broken_) return false;
  std::array<std::byte, frame_header_bytes> mark;
  FrameHeader header;
  header.end = true;
  encode(header, mark);
  try {
    lanes_[0]->out.append(mark);
  } catch (const std::bad_alloc&) {
    return false;
  }
  note_queued();
  return true;
}

bool Link::drain(std::span<std::byte> scratch) noexcept {
  const std::lock_guard hold(lock_);
  if (state_locked() != State::up || broken_) return false;
  for (const auto& lane : lanes_) {
    write_lane(*lane);
    if (broken_) return false;
    const iovec piece{scratch.data(), scratch.size()};
    Stream::Result result{Stream::Kind::moved};
    while (result.kind == Stream::Kind::moved) result = lane->stream->read({&piece, 1});
    if (result.kind == Stream::Kind::not_now) continue;
    // The other side has ended as well and reads nothing any more, so there is nothing to wait for.
    broken_ = true;
    drop_queues();
    return false;
  }
  note_queued();
  return true;
}

void Link::end_writing() noexcept {
  const std::lock_guard hold(lock_);
  if (state_locked() != State::up) return;
  for (const auto& lane : lanes_) lane->stream->end_writing();
}

bool Link::on_its_way() const noexcept {
  const std::lock_guard hold(lock_);
  if (state_locked() != State::up || broken_) return false;
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->stream->unacknowledged() > 0; });
}

void Link::close() noexcept {
  std::vector<std::unique_ptr<Lane>> ended;
  {
    const std::lock_guard hold(lock_);
    set_state(State::over);
    drop_queues();
    set_polled(false);
    ended = std::exchange(lanes_, {});
  }
  reading_over_ = true;
  if (reader_) reader_->end();
}

// The receiving half: all of it runs on the polling thread.

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

void Link::begin_reading(Receiver& receiver) noexcept {
  if (reading_over_ || reader_) return;
  gather_.receiver = &receiver;
  gather_.streams = lanes_.size();
  try {
    // Frames of a single stream need no gathering.
    reader_ = std::make_unique<FrameReader>(lanes_.size() == 1 ? receiver : gather_, peer());
  } catch (const std::bad_alloc&) {
    const std::lock_guard hold(lock_);
    return break_off("no memory here to receive");
  }
  const std::lock_guard hold(lock_);
  set_reading(*lanes_[0], true);
}

void Link::set_reading(Lane& lane, bool reading) noexcept {
  if (lane.reading == reading) return;
  lane.reading = reading;
  if (state_locked() == State::up) watch(lane);
}

/// A peer whose frames are not wanted is not read, and its frames wake nobody.
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
  const bool wanted = receiver.wants(peer());
  if (wanted == paused_) pause(!wanted);
  if (!wanted) return false;

  const std::uint64_t frames = reader_->frames();
  const std::uint64_t bytes = reader_->bytes();
  const bool was_large = !reader_->room_in_body().empty();
  std::string why;
  Reading reading = Reading::nothing;
  try {
    if (!gather_.active || gather_.first_left != 0) reading = read_first(why);
    if (reading == Reading::nothing && !gather_.active) return false;  // as most polls
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
  Stream& stream = *lanes_[0]->stream;
  const Stream::Result result = stream.read(std::span(pieces).first(count));
  const Reading reading = judge(stream, result, why);
  if (reading != Reading::something) return reading;
  reads_.store(reads_.load(counting) + 1, counting);
  const bool was_active = gather_.active;
  if (!reader_->filled(result.bytes)) return Reading::over;
  if (was_active) {
    gather_.first_left -= result.bytes;
  } else if (gather_.active) {
    // A split body has begun. The bytes behind its header belong to the first part.
    gather_.first_left -= gather_.first_left + gather_.by_others - reader_->room_in_body().size();
    const std::lock_guard hold(lock_);
    for (std::size_t i = 1; i < lanes_.size(); ++i) set_reading(*lanes_[i], !gather_.left[i].empty());
  }
  if (gather_.active && gather_.first_left == 0) {
    // Nothing is read from the first lane until the others have delivered, so it wakes nobody.
    const std::lock_guard hold(lock_);
    set_reading(*lanes_[0], false);
  }
  return Reading::something;
}

Link::Reading Link::read_lane(std::size_t number, std::string& why) {
  std::span<std::byte>& left = gather_.left[number];
  const iovec piece = piece_of(left);
  Stream& stream = *lanes_[number]->stream;
  const Stream::Result result = stream.read({&piece, 1});
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

Link::Reading Link::judge(Stream& stream, const Stream::Result& result, std::string& why) const {
  switch (result.kind) {
    case Stream::Kind::moved:
      return Reading::something;
    case Stream::Kind::not_now:
      return Reading::nothing;
    case Stream::Kind::end:
      why = "connection closed by peer: its process has ended";
      return Reading::over;
    case Stream::Kind::failed:
      why = stream.failure();
      return Reading::over;
  }
  return Reading::nothing;
}

void Link::lose(Receiver& receiver, const std::string& why) {
  // Frames from before the end still count, and the end may have been an ordered one.
  constexpr int reads_max = 1024;
  for (int i = 0; i < reads_max && !reading_over_ && reader_; ++i) {
    const std::uint64_t reads = reads_.load(counting);
    read(receiver);
    if (reads_.load(counting) == reads) break;
  }
  if (!reading_over_) finish(receiver, why);
}

/// Ends reading and writing. No reason means that the peer has ended in order.
void Link::finish(Receiver& receiver, const std::optional<std::string>& why) {
  reading_over_ = true;
  std::vector<std::unique_ptr<Lane>> ended;
  {
    const std::lock_guard hold(lock_);
    set_state(State::over);
    drop_queues();
    set_polled(false);
    ended = std::exchange(lanes_, {});
  }
  ended.clear();
  if (reader_) reader_->end();
  if (why) receiver.peer_lost(peer(), loss(*why));
}

std::string Link::loss(const std::string& why) const {
  return relay_.empty() ? why : "by relay " + relay_ + ": " + why;
}

}  // namespace aplib::comm::tcp
