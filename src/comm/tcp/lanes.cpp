// SPDX-License-Identifier: MIT
#include "comm/tcp/lanes.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "arch/cpu.hpp"
#include "comm/tcp/chunk.hpp"

namespace aplib::comm::tcp {
namespace {

constexpr auto counter = std::memory_order_relaxed;  // nothing else is read after it

/// The system is asked for news at most that often: some 10 us. No round trip of a long link is so short.
constexpr std::uint64_t look_every_cycles = 25'000;
constexpr std::uint64_t hold_within_cycles = 10'000;  // as Link
constexpr std::size_t hold_below_bytes = 8 * 1024;
constexpr std::size_t held_bytes_max = 32 * 1024;
constexpr std::size_t buffer_bytes = 64 * 1024;
/// Behind a place in a large body the buffer offers only this: what of the next chunk lands there is copied.
constexpr std::size_t buffer_behind_place_bytes = 4 * 1024;
/// A chunk takes so many seconds on its lane, where there are several: so long others wait for it.
constexpr double chunk_seconds = 0.01;
constexpr std::size_t chunk_bytes_min = 16 * 1024;
/// What the system has of a lane's and has not sent waits for that lane alone, while all that comes by others waits for
/// it at the other end. So, where there are several, it is what a lane sends in so many seconds.
constexpr double unsent_seconds = 0.02;
constexpr std::size_t unsent_bytes_min = 32 * 1024;
constexpr std::size_t unsent_bytes_max = 256 * 1024;

double seconds_of(Lanes::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}
double now_seconds() { return seconds_of(Lanes::Clock::now()); }

}  // namespace

struct Lanes::Lane {
  std::unique_ptr<Stream> stream;

  // Under the lock.
  Outflow::Share* share = nullptr;  // Null: nothing is written any more.
  std::array<std::byte, Chunk::header_bytes> header{};
  std::size_t whole = 0;    // Of the chunk under way with its header; 0: there is none.
  std::size_t written = 0;  // Of these.
  std::size_t chunk_bytes = Chunk::bytes_max;
  bool full = false;
  AnswerWatch answers{};
  Progress before{};

  // The polling thread's.
  std::unique_ptr<std::byte[]> buffer;
  std::size_t held = 0;      // Bytes at the front of the buffer: the beginning of a chunk.
  std::uint64_t offset = 0;  // Of the chunk that comes: the next byte,
  std::size_t left = 0;      // and how many.
  bool ended = false;
};

Lanes::Lanes(std::mutex& lock, std::function<void()> ask, LaneGrowth growth)
    : lock_(lock), ask_(std::move(ask)), epoll_(::epoll_create1(EPOLL_CLOEXEC)), growth_(growth) {
  if (epoll_) return;
  throw Error(Errc::exhausted,
              fmt::format("tcp: cannot make the descriptor on which a long link waits: {}", os::text_of(errno)));
}

Lanes::~Lanes() = default;

// The sending half.

bool Lanes::add(std::unique_ptr<Stream> stream) {
  if (over_ || lanes_.size() >= most) return true;
  auto made = std::make_unique<Lane>();
  made->buffer = std::make_unique_for_overwrite<std::byte[]>(buffer_bytes);
  made->share = &out_.open();
  made->stream = std::move(stream);
  Lane& lane = *lanes_.emplace_back(std::move(made));
  pull_by_room(lane.stream->socket(), standing() == 1 ? unsent_bytes_max : unsent_bytes_min);
  if (lane.stream->read_ahead()) fresh_.store(true);
  // The last step: from here on the polling thread may use it.
  published_.fetch_add(1, std::memory_order_release);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &lane;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, lane.stream->socket(), &event) != 0) {
    lane.share = nullptr;  // the link is over; nothing is taken from what the polling thread may look at
    return false;
  }
  cut_.reset();
  owes_ = true;  // what was acknowledged by a lane that has ended may not have arrived
  write();
  return true;
}

std::size_t Lanes::standing() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(lanes_, [](const auto& lane) { return lane->share; }));
}

std::size_t Lanes::waiting() const noexcept {
  std::size_t bytes = out_.waiting();
  for (const auto& lane : lanes_) bytes += lane->whole - lane->written;
  return bytes;
}

bool Lanes::on_its_way() noexcept {
  constexpr std::chrono::milliseconds patience{500};
  if (out_.unacknowledged() == 0) return false;
  const bool there = std::ranges::all_of(
      lanes_, [](const auto& lane) { return lane->share == nullptr || lane->stream->unacknowledged() <= 0; });
  if (!there || standing() == 0) {
    there_since_.reset();
    return true;
  }
  if (!there_since_) there_since_ = Clock::now();
  return Clock::now() - *there_since_ < patience;
}

Lanes::Need Lanes::need() const {
  if (over_) return {};
  const auto stand = static_cast<unsigned>(standing());
  const unsigned wanted = std::max(growth_.wanted(), std::min(peer_wants_, LaneGrowth::lanes_max));
  return {.lanes = wanted > stand ? wanted - stand : 0, .cut = cut_, .why = last_end_};
}

void Lanes::send(std::span<const std::byte, frame_header_bytes> header, std::span<const std::byte> body) {
  out_.append(header, body);
  // As a near link: small frames that follow each other closely go together.
  if (body.size() >= hold_below_bytes || out_.waiting() >= held_bytes_max ||
      cycles() - last_write_ >= hold_within_cycles)
    write();
}

void Lanes::end() {
  std::array<std::byte, frame_header_bytes> mark;
  FrameHeader header;
  header.end = true;
  encode(header, mark);
  out_.append(mark);
  out_.end();
  write();
}

void Lanes::write() {
  if (over_) return;
  for (const auto& lane : lanes_)
    if (lane->share != nullptr && !lane->full) write(*lane);
  note_pressure();
}

bool Lanes::begin_chunk(Lane& lane) {
  const auto first = std::ranges::find_if(lanes_, [](const auto& each) { return each->share != nullptr; });
  if (!out_.give(*lane.share, first->get() == &lane, lane.chunk_bytes) && !owes_) return false;
  const Outflow::Range range = lane.share->current;
  const Chunk chunk{.offset = range.empty() ? 0 : range.begin,
                    .bytes = static_cast<std::uint32_t>(range.bytes()),
                    .ends = !range.empty() && out_.is_last(*lane.share),
                    .acknowledged = owed_,
                    .lanes = static_cast<std::uint16_t>(growth_.wanted())};
  owes_ = false;
  encode_chunk(chunk, lane.header);
  lane.whole = lane.header.size() + chunk.bytes;
  lane.written = 0;
  if (timed_from_ == 0 && chunk.bytes != 0) {
    timed_offset_ = range.end;
    timed_from_ = now_seconds();
  }
  return true;
}

void Lanes::write(Lane& lane) {
  constexpr std::size_t pieces_max = 16;
  std::array<iovec, pieces_max> pieces;
  while (lane.whole != 0 || begin_chunk(lane)) {
    std::size_t count = 0;
    std::uint64_t skip = 0;
    if (lane.written < lane.header.size()) {
      pieces[count++] = {lane.header.data() + lane.written, lane.header.size() - lane.written};
    } else {
      skip = lane.written - lane.header.size();
    }
    if (!lane.share->current.empty()) count += out_.peek(*lane.share, skip, std::span(pieces).subspan(count));
    const Stream::Result result = lane.stream->write(std::span(pieces).first(count));
    writes_.store(writes_.load(counter) + 1, counter);
    if (result.kind == Stream::Kind::failed) return give_up(lane, lane.stream->failure());
    if (result.kind != Stream::Kind::moved) {
      // Else nobody would be told when there is room.
      if (!set_full(lane, true)) {
        give_up(lane, "its connection cannot be watched here: " + std::generic_category().message(errno));
      }
      return;
    }
    last_write_ = cycles();
    lane.written += result.bytes;
    if (lane.written < lane.whole) continue;
    lane.whole = lane.written = 0;
    if (!lane.share->current.empty()) out_.sent(*lane.share);
  }
}

/// The polling thread is told when there is room again.
bool Lanes::set_full(Lane& lane, bool full) noexcept {
  if (lane.full == full) return true;
  lane.full = full;
  epoll_event event{};
  event.events = full ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = &lane;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.stream->socket(), &event) == 0;
}

/// Nothing is written by it any more. The polling thread takes what has come by it, and removes it.
void Lanes::give_up(Lane& lane, const std::string& why) {
  if (lane.share == nullptr) return;
  Outflow::Share& share = *std::exchange(lane.share, nullptr);
  lane.whole = lane.written = 0;
  static_cast<void>(set_full(lane, false));  // it is at its end in any case
  last_end_ = why;
  owes_ = true;  // as add()
  out_.lose(share);
  if (standing() == 0 && !cut_) cut_ = Clock::now();
  ask_();
}

void Lanes::remove_ended() {
  for (const auto& lane : lanes_) {
    if (!lane->ended) continue;
    give_up(*lane, last_end_);
    static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane->stream->socket(), nullptr));
  }
  std::erase_if(lanes_, [](const auto& lane) { return lane->ended; });
}

void Lanes::note_pressure() {
  if (growth_.pressed() || out_.waiting() == 0 || lanes_.empty() ||
      !std::ranges::all_of(lanes_, [](const auto& lane) { return lane->full || lane->share == nullptr; }))
    return;
  growth_.press(now_seconds(), out_.acknowledged());
}

/// What the system says of the lanes, and what follows from it.
void Lanes::report() {
  if (!growth_.pressed()) return;
  const double now = now_seconds();
  double round_trip = round_trip_;
  if (round_trip == 0 && !lanes_.empty())
    round_trip = std::chrono::duration<double>(tcp::round_trip(lanes_.front()->stream->socket())).count();
  if (now < growth_.next_report(round_trip)) return;
  bool limited = false;
  const std::size_t stand = standing();
  for (const auto& lane : lanes_) {
    if (lane->share == nullptr) continue;
    const Progress progress = progress_of(lane->stream->socket());
    const Progress before = std::exchange(lane->before, progress);
    limited |= 2 * (progress.limited - before.limited) > progress.busy - before.busy && progress.busy != before.busy;
    const double bytes = static_cast<double>(progress.bytes_per_second) * chunk_seconds;
    lane->chunk_bytes =
        stand == 1 ? Chunk::bytes_max
                   : std::clamp(static_cast<std::size_t>(bytes), chunk_bytes_min, std::size_t{Chunk::bytes_max});
    const double unsent = static_cast<double>(progress.bytes_per_second) * unsent_seconds;
    if (stand > 1)
      pull_by_room(lane->stream->socket(),
                   std::clamp(static_cast<std::size_t>(unsent), unsent_bytes_min, unsent_bytes_max));
  }
  if (growth_.report({.now = now,
                      .round_trip = round_trip,
                      .acknowledged = out_.acknowledged(),
                      .waiting = out_.waiting(),
                      .lanes = static_cast<unsigned>(stand),
                      .buffers_limit = limited}))
    ask_();
}

bool Lanes::check_answers(std::chrono::milliseconds timeout) {
  bool active = false;
  const Clock::time_point now = Clock::now();
  for (const auto& lane : lanes_) {
    if (lane->share == nullptr) continue;
    if (lane->answers.look(*lane->stream, now, timeout)) {
      active |= lane->answers.waits();
      continue;
    }
    active = true;
    lane->stream->break_off();  // the polling thread hears of it
    give_up(*lane, AnswerWatch::words(timeout));
  }
  if (active) write();
  return active;
}

void Lanes::say_farewell() noexcept {
  out_.clear();
  try {
    owes_ = true;
    owed_ = in_.tell();
    write();
  } catch (const std::bad_alloc&) {
    // the other side ends all the same, only later
  }
  over_ = true;
  for (const auto& lane : lanes_) lane->stream->end_writing();
}

// The receiving half: all of it runs on the polling thread.

Lanes::Reading Lanes::read(bool wanted, std::string& why) {
  in_.begin(wanted);
  News news;
  bool something = in_.stands_ready();
  if (!in_.go_on() || !look(news)) {
    why = !news.refusal.empty() ? news.refusal : in_.refusal();
    return Reading::over;
  }
  something |= news.acknowledged != 0 || news.lanes != 0;  // every chunk says that
  if (!something && !news.writable && !news.ended) return Reading::nothing;
  why = heed(news);
  if (!why.empty()) return Reading::over;
  return something ? Reading::something : Reading::wrote;
}

/// Reads what the system, or an earlier read, says that there is. False: refused.
bool Lanes::look(News& news) {
  std::vector<Lane*> ahead = std::exchange(ahead_, {});
  if (fresh_.exchange(false)) {
    const std::lock_guard hold(lock_);
    ahead.clear();
    for (const auto& lane : lanes_)
      if (lane->stream->read_ahead()) ahead.push_back(lane.get());
  }
  for (Lane* const lane : ahead)
    if (!read_lane(*lane, news)) return false;
  const std::uint64_t now = cycles();
  if (now - looked_ < look_every_cycles) return true;
  looked_ = now;
  std::array<epoll_event, most> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  static_cast<void>(published_.load(std::memory_order_acquire));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    Lane& lane = *static_cast<Lane*>(event.data.ptr);
    if ((event.events & EPOLLOUT) != 0) {
      const std::lock_guard hold(lock_);
      static_cast<void>(set_full(lane, false));  // if it fails, this is told again
      news.writable = true;
    }
    if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0 && std::ranges::find(ahead, &lane) == ahead.end() &&
        !read_lane(lane, news))
      return false;
  }
  return true;
}

/// One read. False: refused.
bool Lanes::read_lane(Lane& lane, News& news) {
  if (lane.ended) return true;
  const std::span<std::byte> place = lane.left != 0 ? in_.place(lane.offset, lane.left) : std::span<std::byte>();
  std::array<iovec, 2> pieces;
  std::size_t count = 0;
  if (!place.empty()) pieces[count++] = {place.data(), place.size()};
  const std::size_t room = place.empty() ? buffer_bytes : buffer_behind_place_bytes;
  pieces[count++] = {lane.buffer.get() + lane.held, room - lane.held};
  const Stream::Result result = lane.stream->read(std::span(pieces).first(count));
  reads_.store(reads_.load(counter) + 1, counter);
  if (result.kind == Stream::Kind::not_now) return true;
  if (result.kind != Stream::Kind::moved) {
    const std::lock_guard hold(lock_);
    last_end_ = result.kind == Stream::Kind::end ? "connection closed by peer" : lane.stream->failure();
    lane.ended = news.ended = true;
    return true;
  }
  if (lane.stream->read_ahead()) ahead_.push_back(&lane);
  const std::size_t placed = std::min(result.bytes, place.size());
  if (placed != 0) {
    news.lanes = std::max(news.lanes, 1U);
    if (!in_.in_place(lane.offset, placed)) return false;
    lane.offset += placed;
    lane.left -= placed;
  }
  lane.held += result.bytes - placed;
  return parse(lane, news);
}

bool Lanes::parse(Lane& lane, News& news) {
  std::size_t at = 0;
  while (at != lane.held) {
    if (lane.left == 0) {
      if (lane.held - at < Chunk::header_bytes) break;
      const auto chunk =
          decode_chunk(std::span<const std::byte, Chunk::header_bytes>(lane.buffer.get() + at, Chunk::header_bytes));
      news.refusal = chunk ? in_.objection(*chunk) : "no chunk of a stream begins so: the stream is damaged";
      if (!news.refusal.empty()) return false;
      news.acknowledged = std::max(news.acknowledged, chunk->acknowledged);
      news.lanes = std::max({news.lanes, unsigned{chunk->lanes}, 1U});
      lane.offset = chunk->offset;
      lane.left = chunk->bytes;
      at += Chunk::header_bytes;
      continue;
    }
    news.lanes = std::max(news.lanes, 1U);
    const std::size_t part = std::min(lane.left, lane.held - at);
    if (!in_.take(lane.offset, {lane.buffer.get() + at, part}, lane.left - part)) return false;
    lane.offset += part;
    lane.left -= part;
    at += part;
  }
  lane.held -= at;
  if (lane.held != 0 && at != 0) std::memmove(lane.buffer.get(), lane.buffer.get() + at, lane.held);
  return true;
}

/// What has come concerns the sending half. Returns why the link cannot go on; "": it can.
std::string Lanes::heed(const News& news) {
  const std::lock_guard hold(lock_);
  if (!out_.acknowledge(news.acknowledged)) {
    return fmt::format("it has taken {} bytes of a stream of which {} were sent: the stream is damaged",
                       news.acknowledged, out_.given());
  }
  if (news.lanes > 1 && news.lanes != peer_wants_) {
    peer_wants_ = news.lanes;
    ask_();
  }
  if (timed_from_ != 0 && out_.acknowledged() >= timed_offset_) {
    const double sample = now_seconds() - std::exchange(timed_from_, 0);
    round_trip_ = round_trip_ == 0 ? sample : std::min(round_trip_, sample);
  }
  if (news.ended) remove_ended();
  if (in_.owes()) owes_ = true;
  if (owes_) owed_ = in_.tell();
  write();
  report();
  return {};
}

}  // namespace aplib::comm::tcp
