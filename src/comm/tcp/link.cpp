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
  throw Error(Errc::exhausted, fmt::format("tcp: cannot make the descriptors it waits on: {}", os::text_of(errno)));
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
  if (lanes_) [[unlikely]] {
    lanes_->send(header, body);
    return note_queued();
  }
  Lane& lane = *lane_;
  if (body.size() < hold_below_bytes) {
    const bool alone = lane.out.empty() && cycles() - last_write_ >= hold_within_cycles;
    if (!alone) {
      lane.out.append(header, body);
      if (!lane.full && lane.out.bytes() >= held_bytes_max) write_lane();
      note_queued();
      return;
    }
    constexpr std::size_t together_max = 512;
    if (body.size() <= together_max) {  // one piece is cheaper for the system than two
      std::array<std::byte, frame_header_bytes + together_max> together;
      std::memcpy(together.data(), header.data(), header.size());
      if (!body.empty()) std::memcpy(together.data() + header.size(), body.data(), body.size());
      push({std::span(together).first(header.size() + body.size()), {}});
    } else {
      push({header, body});
    }
    // The clock runs from the end of the write, which may itself take longer than frames are held. The receiver then
    // has the frame already, and loses nothing.
    last_write_ = cycles();
    return;
  }
  push({header, body});
}

/// Sends the frame from where it lies, behind the bytes that are queued, while the system takes them, and a little
/// longer. Then copies the rest.
void Link::push(Outgoing frame) {
  Clock::time_point stuck_since{};
  while (true) {
    const bool moved = push_some(frame);
    if (broken_) return;
    if (frame.bytes() == 0) return note_queued();
    if (moved) {
      stuck_since = {};
      continue;
    }
    if (frame.bytes() < patience_from_bytes) break;
    const Clock::time_point now = Clock::now();
    if (stuck_since == Clock::time_point{}) stuck_since = now;
    if (now - stuck_since >= patience) break;
    // The other side empties the system's buffers now, and may need the lock of this very socket.
    constexpr int rounds = 32;
    for (int i = 0; i < rounds; ++i) cpu_relax();
  }
  try {
    lane_->out.append(frame.header, frame.body);
    set_full(true);
  } catch (const std::bad_alloc&) {
    // A part of the frame may have gone out. The rest never will.
    break_off("no memory here for what it has not taken");
    throw;
  }
  note_queued();
}

/// Makes one write of the queue and then the frame, from which the bytes sent are removed. Returns whether any went
/// out.
bool Link::push_some(Outgoing& frame) noexcept {
  constexpr std::size_t queued_pieces_max = 14;
  std::array<iovec, queued_pieces_max + 2> pieces;
  OutQueue& out = lane_->out;
  std::size_t count = out.peek(std::span(pieces).first(queued_pieces_max));
  std::size_t covered = 0;
  for (std::size_t i = 0; i < count; ++i) covered += pieces[i].iov_len;
  if (covered == out.bytes()) {
    for (const std::span<const std::byte> bytes : {frame.header, frame.body})
      if (!bytes.empty()) pieces[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  }
  const Stream::Result result = lane_->stream->write(std::span(pieces).first(count));
  add(writes_, 1);
  if (result.kind == Stream::Kind::failed) break_off([&] { return lane_->stream->failure(); });
  if (result.kind != Stream::Kind::moved) return false;
  std::size_t bytes = result.bytes - out.remove(result.bytes);
  frame.header = behind(frame.header, bytes);
  frame.body = behind(frame.body, bytes);
  if (frame.bytes() == 0 && lane_->full) set_full(false);
  return true;
}

void Link::write_lane() noexcept {
  constexpr std::size_t pieces_max = 16;
  std::array<iovec, pieces_max> pieces;
  Lane& lane = *lane_;
  while (!lane.out.empty()) {
    const std::size_t count = lane.out.peek(pieces);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) bytes += pieces[i].iov_len;
    const Stream::Result result = lane.stream->write(std::span(pieces).first(count));
    add(writes_, 1);
    if (result.kind == Stream::Kind::failed) return break_off([&] { return lane.stream->failure(); });
    if (result.kind != Stream::Kind::moved) return set_full(true);
    lane.out.remove(result.bytes);
    last_write_ = cycles();
    if (result.bytes < bytes) return set_full(true);
  }
  set_full(false);
}

/// A long link.
void Link::write_lanes() noexcept {
  try {
    lanes_->write();
  } catch (const std::bad_alloc&) {
    break_off("no memory here for what it has not taken");
  }
}

void Link::write(bool also_full) noexcept {
  // A thread that holds the lock for long is sending a large frame, behind the queue. The link stays listed.
  constexpr int tries = 64;
  std::unique_lock hold(lock_, std::try_to_lock);
  for (int i = 0; i < tries && !hold.owns_lock(); ++i) {
    cpu_relax();
    static_cast<void>(hold.try_lock());
  }
  if (!hold.owns_lock()) {
    poller_.add_writer(this);
    if (poller_.someone_sleeps()) poller_.wake();  // it may have looked while the link was not listed
    return;
  }
  writes_later_ = false;
  if (state_locked() != State::up || broken_) return;
  if (lanes_) {
    write_lanes();
  } else if (!lane_->out.empty() && (also_full || !lane_->full)) {
    write_lane();
  }
  if (!broken_) note_queued();
}

/// Call after every change of the queue.
void Link::note_queued() noexcept {
  std::size_t bytes = early_bytes();
  if (lane_) {
    bytes += lane_->out.bytes();
  } else if (lanes_) {
    bytes += lanes_->waiting();
  }
  queued_.store(bytes, std::memory_order_relaxed);
  if (bytes == 0 || writes_later_ || state_locked() != State::up) return;
  writes_later_ = true;
  poller_.add_writer(this);
}

void Link::set_full(bool full) noexcept {
  lane_->full = full;
  watch();
}

void Link::watch() noexcept {
  Lane& lane = *lane_;
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

void Link::set_polled(bool polled) noexcept {
  if (!lane_ || lane_->polled == polled) return;
  lane_->polled = polled;
  poller_.count_unwatched(polled ? 1 : -1);
  if (state_locked() == State::up) watch();
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
  if (lane_) {
    lane_->out.clear();
    lane_->full = false;
  } else if (lanes_) {
    lanes_->drop();
  }
  queued_.store(0, std::memory_order_relaxed);
}

/// Earlier bytes of the peer may still lie in the sockets. The polling thread takes them, and then ends the link.
void Link::stop_writing() noexcept {
  if (lane_) {
    lane_->full = false;
    watch();
  }
  drop_queues();
}

Link::State Link::state() const {
  const std::lock_guard hold(lock_);
  return state_locked();
}

std::size_t Link::streams() const {
  const std::lock_guard hold(lock_);
  return lanes_ ? lanes_->standing() : lane_ ? 1 : 0;
}

bool Link::is_cut() const {
  const std::lock_guard hold(lock_);
  return lanes_ && state_locked() == State::up && lanes_->standing() == 0;
}

void Link::count(Traffic& into) const noexcept {
  into.frames_sent += frames_sent_.load(counting);
  into.bytes_sent += bytes_sent_.load(counting);
  into.frames_received += frames_received_.load(counting);
  into.bytes_received += bytes_received_.load(counting);
  into.system_calls += writes_.load(counting) + reads_.load(counting);
  const std::lock_guard hold(lock_);
  if (lanes_) into.system_calls += lanes_->calls();
}

Link::Answer Link::take_call(Peer self, bool is_long) {
  const std::lock_guard hold(lock_);
  const bool more = state_locked() == State::gathering || (state_locked() == State::up && lanes_);
  if (is_long && more && !broken_) return Answer::taken;
  return comm::Link::take_call(self);
}

bool Link::has_ended() const {
  const std::lock_guard hold(lock_);
  return state_locked() == State::over || broken_;
}

bool Link::connect(std::unique_ptr<Stream> stream) {
  auto lane = std::make_unique<Lane>();
  lane->stream = std::move(stream);
  const std::lock_guard hold(lock_);
  if (state_locked() == State::over || broken_) return false;
  lane_ = std::move(lane);
  if (!come_up()) return false;
  send_early();
  if (broken_) return true;
  if (!lane_->full) write_lane();
  if (!broken_) note_queued();
  return true;
}

bool Link::connect_long(std::unique_ptr<Stream> stream, LaneGrowth growth, const std::function<void()>& ask) {
  const std::lock_guard hold(lock_);
  if (state_locked() == State::over || broken_) return false;
  const bool first = !lanes_;
  const bool ahead = stream->read_ahead();
  try {
    if (first) lanes_ = std::make_unique<Lanes>(lock_, ask, growth);
    if (first && !come_up()) return false;
    if (!lanes_->add(std::move(stream))) {
      break_off([reason = errno] {
        return "its connection cannot be watched here: " + std::generic_category().message(reason);
      });
    }
  } catch (const std::bad_alloc&) {
    break_off("no memory here for its connection");
  } catch (const Error& error) {
    break_off(error.what());
  }
  if (first && !broken_) send_early();
  if (!broken_) note_queued();
  if (ahead) poller_.wake();  // bytes have come with the handshake, of which the system does not tell
  return true;
}

/// What was sent before it was up.
void Link::send_early() noexcept {
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
}

Lanes::Need Link::need() const {
  const std::lock_guard hold(lock_);
  return lanes_ && state_locked() == State::up && !broken_ ? lanes_->need() : Lanes::Need{};
}

void Link::limit_streams() noexcept {
  const std::lock_guard hold(lock_);
  if (lanes_) lanes_->limit();
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
  if (lanes_) {
    try {
      return lanes_->check_answers(timeout) || active;
    } catch (const std::bad_alloc&) {
      break_off("no memory here for what it has not taken");
      return active;
    }
  }
  if (!lane_->answers.look(*lane_->stream, Clock::now(), timeout))
    break_off([&] { return AnswerWatch::words(timeout); });
  return active || lane_->answers.waits();
}

bool Link::end_in_order() noexcept {
  const std::lock_guard hold(lock_);
  if (state_locked() != State::up || broken_) return false;
  try {
    if (lanes_) {
      lanes_->end();
    } else {
      std::array<std::byte, frame_header_bytes> mark;
      FrameHeader header;
      header.end = true;
      encode(header, mark);
      lane_->out.append(mark);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  note_queued();
  return true;
}

bool Link::drain(std::span<std::byte> scratch) noexcept {
  if (lanes_) return drain_lanes();
  const std::lock_guard hold(lock_);
  if (state_locked() != State::up || broken_) return false;
  write_lane();
  if (broken_) return false;
  const iovec piece{scratch.data(), scratch.size()};
  Stream::Result result{Stream::Kind::moved};
  while (result.kind == Stream::Kind::moved) result = lane_->stream->read({&piece, 1});
  if (result.kind == Stream::Kind::not_now) {
    note_queued();
    return true;
  }
  // The other side has ended as well and reads nothing any more, so there is nothing to wait for.
  broken_ = true;
  drop_queues();
  return false;
}

/// A long link: the other side also wants to hear what was taken, so the stream is read to its end.
bool Link::drain_lanes() noexcept {
  {
    const std::lock_guard hold(lock_);
    if (state_locked() != State::up || broken_) return false;
  }
  try {
    std::string why;
    lanes_->discard();
    if (lanes_->read(true, why) != Lanes::Reading::over && !lanes_->complete()) {
      const std::lock_guard hold(lock_);
      note_queued();
      return true;
    }
  } catch (const std::bad_alloc&) {
    // it is not waited for
  }
  const std::lock_guard hold(lock_);
  lanes_->say_farewell();
  broken_ = true;
  drop_queues();
  return false;
}

void Link::end_writing() noexcept {
  const std::lock_guard hold(lock_);
  if (state_locked() == State::up && lane_) lane_->stream->end_writing();
}

bool Link::on_its_way() const noexcept {
  const std::lock_guard hold(lock_);
  if (state_locked() != State::up || broken_) return false;
  return lanes_ ? lanes_->on_its_way() : lane_->stream->unacknowledged() > 0;
}

void Link::close() noexcept {
  std::unique_ptr<Lane> ended;
  std::unique_ptr<Lanes> lanes_ended;
  {
    const std::lock_guard hold(lock_);
    set_state(State::over);
    drop_queues();
    set_polled(false);
    ended = std::move(lane_);
    lanes_ended = std::move(lanes_);
  }
  reading_over_ = true;
  if (reader_) reader_->end();
}

// The receiving half: all of it runs on the polling thread.

void Link::begin_reading(Receiver& receiver) noexcept {
  if (reading_over_ || reader_) return;
  try {
    reader_ = std::make_unique<FrameReader>(receiver, peer());
  } catch (const std::bad_alloc&) {
    const std::lock_guard hold(lock_);
    return break_off("no memory here to receive");
  }
  const std::lock_guard hold(lock_);
  if (!lanes_) return set_reading(true);
  lanes_->begin(*reader_);
  if (!poller_.watch(lanes_->descriptor(), this, 0, EPOLLIN)) {
    break_off([reason = errno] {
      return "its connections cannot be watched here: " + std::generic_category().message(reason);
    });
  }
}

void Link::set_reading(bool reading) noexcept {
  if (lane_->reading == reading) return;
  lane_->reading = reading;
  if (state_locked() == State::up) watch();
}

/// A peer whose frames are not wanted is not read, and its frames wake nobody.
void Link::pause(bool pause) noexcept {
  paused_ = pause;
  const std::lock_guard hold(lock_);
  if (lane_) set_reading(!pause);
}

bool Link::read_ahead() const noexcept {
  if (lanes_) [[unlikely]]
    return reader_ && lanes_->read_ahead();
  return lane_ && lane_->reading && lane_->stream->read_ahead();
}

bool Link::read(Receiver& receiver) {
  if (reading_over_ || !reader_) return false;
  const bool wanted = receiver.wants(peer());
  if (wanted == paused_) pause(!wanted);
  if (lanes_) [[unlikely]]
    return read_lanes(wanted, receiver);
  if (!wanted) return false;

  bool over = false;
  bool moved = false;
  std::string why;
  try {
    moved = read_lane(over, why);
    if (!moved && !over) return false;  // as most polls
  } catch (const std::bad_alloc&) {
    why = "no memory here to receive";
    over = true;
  }
  return hear_end(receiver, moved, over, std::move(why));
}

/// One read of a near link. Returns whether it brought anything.
bool Link::read_lane(bool& over, std::string& why) {
  const FrameReader::Room room = reader_->room();
  std::array<iovec, 2> pieces;
  std::size_t count = 0;
  if (!room.body.empty()) pieces[count++] = piece_of(room.body);
  pieces[count++] = piece_of(room.buffer);
  Stream& stream = *lane_->stream;
  const Stream::Result result = stream.read(std::span(pieces).first(count));
  switch (result.kind) {
    case Stream::Kind::moved:
      reads_.store(reads_.load(counting) + 1, counting);
      over = !reader_->filled(result.bytes);
      return true;
    case Stream::Kind::not_now:
      break;
    case Stream::Kind::end:
      why = "connection closed by peer: its process has ended";
      over = true;
      break;
    case Stream::Kind::failed:
      why = stream.failure();
      over = true;
      break;
  }
  return false;
}

/// A long link.
bool Link::read_lanes(bool wanted, Receiver& receiver) {
  Lanes::Reading reading = Lanes::Reading::over;
  std::string why;
  try {
    reading = lanes_->read(wanted, why);
  } catch (const std::bad_alloc&) {
    why = "no memory here to receive";
  }
  if (reading == Lanes::Reading::nothing) return false;
  {
    const std::lock_guard hold(lock_);
    note_queued();
  }
  return hear_end(receiver, reading == Lanes::Reading::something, reading == Lanes::Reading::over, std::move(why));
}

/// After a read: ends the link if the stream has ended. Returns whether there was an upcall.
bool Link::hear_end(Receiver& receiver, bool moved, bool over, std::string why) {
  frames_received_.store(reader_->frames(), counting);
  bytes_received_.store(reader_->bytes(), counting);
  if (!reader_->refusal().empty()) why = reader_->refusal();
  const bool in_order = reader_->ended_in_order() && reader_->refusal().empty();
  if (!over && !in_order) return moved;
  finish(receiver, in_order ? std::nullopt : std::optional(why));
  return moved || !in_order;
}

void Link::lose(Receiver& receiver, const std::string& why) {
  // Frames from before the end still count, and the end may have been an ordered one.
  constexpr int reads_max = 1024;
  for (int i = 0; i < reads_max && !reading_over_ && reader_; ++i) {
    const std::uint64_t reads = reads_.load(counting);
    read(receiver);
    if (lanes_ ? !lanes_->read_ahead() : reads_.load(counting) == reads) break;
  }
  if (!reading_over_) finish(receiver, why);
}

/// Ends reading and writing. No reason means that the peer has ended in order.
void Link::finish(Receiver& receiver, const std::optional<std::string>& why) {
  reading_over_ = true;
  std::unique_ptr<Lane> ended;
  std::unique_ptr<Lanes> lanes_ended;
  {
    const std::lock_guard hold(lock_);
    if (lanes_ && !why) {
      // The sockets stay: one that is closed with bytes that were not read takes back what was sent last.
      lanes_->say_farewell();
      static_cast<void>(poller_.watch(lanes_->descriptor(), this, EPOLLIN, 0));
    }
    set_state(State::over);
    drop_queues();
    set_polled(false);
    ended = std::move(lane_);
    if (lanes_ && why) {
      add(writes_, lanes_->calls());
      lanes_ended = std::move(lanes_);
    }
  }
  ended.reset();
  lanes_ended.reset();
  if (reader_) reader_->end();
  if (why) receiver.peer_lost(peer(), loss(*why));
}

std::string Link::loss(const std::string& why) const {
  return relay_.empty() ? why : "by relay " + relay_ + ": " + why;
}

}  // namespace aplib::comm::tcp
