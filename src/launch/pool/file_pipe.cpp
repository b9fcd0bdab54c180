// SPDX-License-Identifier: MIT
#include "launch/pool/file_pipe.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <type_traits>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/local_socket.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;

namespace {

constexpr const char* cut_off = "the connection was cut off before all files were there; the same command goes on";
constexpr const char* disorder = "the other end's lanes do not make a stream: is APlib of the same version there?";
// An end that is done closes all its lanes at once. Where one alone closes, the stream has lost what was in it.
constexpr auto last_words_patience = 5s;
constexpr std::size_t pieces_max = 16;  // that are read from a lane before others have their turn
constexpr std::size_t said_at_once_max = std::size_t{256} << 10;

wire::Bytes next_of(files::Sender& sender) { return sender.next(); }
wire::Bytes next_of(files::Receiver& receiver) { return receiver.reply(); }

}  // namespace

template <class End>
Carrier<End>::Carrier(End& end, const os::Ends& ends, LaneSource* source) : end_(end), source_(source) {
  add({.reader = ends.reader.get(), .writer = ends.writer.get()});
}

template <class End>
Carrier<End>::Carrier(End& end, std::unique_ptr<comm::tcp::Stream> stream) : end_(end), source_(nullptr) {
  const int socket = stream->socket();
  add({.stream = std::move(stream), .reader = socket, .writer = socket});
}

template <class End>
bool Carrier<End>::work(std::span<const pollfd> waits) {
  if (source_ != nullptr && (waits.empty() || waits.back().revents != 0)) take_lanes();
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    if (lanes_[i].hears) listen(i);
  const bool is_heard = speak();
  if (source_ != nullptr) source_->want(growth_.wanted(Clock::now(), joiner_.joined() + said_));
  return is_heard && in_order_ && !is_over();
}

template <class End>
std::vector<std::string> Carrier<End>::problems() const {
  std::vector<std::string> problems = end_.outcome().problems;
  if (end_.outcome().more_problems != 0)
    problems.push_back(fmt::format("and {} more files", end_.outcome().more_problems));
  if (!end_.ended() && problems.empty()) problems.emplace_back(in_order_ ? cut_off : disorder);
  return problems;
}

template <class End>
void Carrier<End>::add(Lane lane) {
  for (const int fd : {lane.reader, lane.writer}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  lanes_.push_back(std::move(lane));
}

template <class End>
void Carrier<End>::take_lanes() {
  for (os::UniqueFd socket = source_->take(); socket; socket = source_->take()) {
    if (lanes_.size() == files::lanes_max) continue;
    const int fd = socket.get();
    add({.own = std::move(socket), .reader = fd, .writer = fd});
  }
}

template <class End>
bool Carrier<End>::is_over() const {
  if (end_.ended()) return !has_unsent();
  for (const Lane& lane : lanes_)
    if (lane.hears) return closed_since_ && Clock::now() - *closed_since_ > last_words_patience;
  return true;
}

template <class End>
bool Carrier<End>::has_unsent() const {
  if (!unsaid_.empty()) return true;
  for (const Lane& lane : lanes_)
    if (!lane.bytes.empty()) return true;
  return false;
}

template <class End>
void Carrier<End>::add_waits(std::vector<pollfd>& waits) const {
  for (const Lane& lane : lanes_) {
    waits.push_back({lane.hears ? lane.reader : -1, POLLIN, 0});
    waits.push_back({lane.bytes.empty() ? -1 : lane.writer, POLLOUT, 0});
  }
  waits.push_back({source_ == nullptr ? -1 : source_->fd(), POLLIN, 0});
}

template <class End>
int Carrier<End>::patience() const {
  for (const Lane& lane : lanes_)
    if (lane.hears && lane.stream && lane.stream->read_ahead()) return 0;
  return closed_since_ ? 1000 : -1;
}

/// What the other end says.
template <class End>
void Carrier<End>::listen(std::size_t number) {
  Lane& lane = lanes_[number];
  std::array<std::byte, 65536> piece;
  for (std::size_t i = 0; i < pieces_max && in_order_; ++i) {
    std::size_t got = 0;
    const Moved moved = read(lane, piece, got);
    if (moved == Moved::not_now) return;
    if (moved == Moved::never) {
      lane.hears = false;
      if (!closed_since_) closed_since_ = Clock::now();
      return;
    }
    const auto bytes = std::span<const std::byte>(piece).first(got);
    in_order_ = joiner_.take(number, bytes, [this](std::span<const std::byte> next) { end_.take(next); });
    if (bytes.size() < piece.size()) return;
  }
}

template <class End>
auto Carrier<End>::read(Lane& lane, std::span<std::byte> into, std::size_t& bytes) -> Moved {
  if (lane.stream) {
    using Kind = comm::tcp::Stream::Kind;
    const iovec part{into.data(), into.size()};
    const auto result = lane.stream->read(std::span(&part, 1));
    bytes = result.bytes;
    return result.kind == Kind::moved ? Moved::some : result.kind == Kind::not_now ? Moved::not_now : Moved::never;
  }
  ssize_t got = 0;
  do {
    got = ::read(lane.reader, into.data(), into.size());
  } while (got < 0 && errno == EINTR);
  if (got > 0) bytes = static_cast<std::size_t>(got);
  return got > 0 ? Moved::some : got < 0 && errno == EAGAIN ? Moved::not_now : Moved::never;
}

/// Says what is to be said, by whichever lanes take it. A receiver says little, and that by the first lane. False:
/// nobody hears it any more.
template <class End>
bool Carrier<End>::speak() {
  for (Lane& lane : lanes_) {
    while (!lane.bytes.empty() || fill(lane)) {
      const Moved moved = write(lane);
      if (moved == Moved::never) return false;
      if (moved == Moved::not_now) break;
    }
    if (std::is_same_v<End, files::Receiver>) return true;
  }
  return true;
}

/// Gives it the next chunk, if there is one.
template <class End>
bool Carrier<End>::fill(Lane& lane) {
  if (unsaid_.empty()) unsaid_ = next_of(end_);
  if (unsaid_.empty()) return false;
  if (unsaid_.size() <= said_at_once_max) {
    lane.bytes = std::exchange(unsaid_, {});
  } else {
    const auto cut = unsaid_.begin() + said_at_once_max;
    lane.bytes.assign(unsaid_.begin(), cut);
    unsaid_.erase(unsaid_.begin(), cut);
  }
  lane.head = files::chunk_head(said_, lane.bytes.size());
  lane.at = 0;
  said_ += lane.bytes.size();
  return true;
}

template <class End>
auto Carrier<End>::write(Lane& lane) -> Moved {
  const std::size_t of_head = std::min(lane.at, lane.head.size());
  const std::size_t of_bytes = lane.at - of_head;
  std::array<iovec, 2> parts{{{lane.head.data() + of_head, lane.head.size() - of_head},
                              {lane.bytes.data() + of_bytes, lane.bytes.size() - of_bytes}}};
  if (lane.stream) {
    using Kind = comm::tcp::Stream::Kind;
    const auto result = lane.stream->write(parts);
    if (result.kind != Kind::moved) return result.kind == Kind::not_now ? Moved::not_now : Moved::never;
    lane.at += result.bytes;
  } else {
    ssize_t written = 0;
    do {
      written = ::writev(lane.writer, parts.data(), parts.size());
    } while (written < 0 && errno == EINTR);
    if (written < 0) return errno == EAGAIN ? Moved::not_now : Moved::never;
    lane.at += static_cast<std::size_t>(written);
  }
  if (lane.at == lane.head.size() + lane.bytes.size()) lane.bytes.clear();
  return Moved::some;
}

template class Carrier<files::Sender>;
template class Carrier<files::Receiver>;

namespace {

template <class End>
std::vector<std::string> carry_on(Carrier<End> carrier) {
  std::vector<pollfd> waits;
  while (carrier.work(waits)) {
    waits.clear();
    carrier.add_waits(waits);
    if (::poll(waits.data(), waits.size(), carrier.patience()) < 0 && errno != EINTR) break;
  }
  return carrier.problems();
}

}  // namespace

os::UniqueFd PassedLanes::take() {
  std::byte nothing{};
  os::ReceivedMessage message = os::receive_message(socket_.get(), std::span(&nothing, 1), MSG_DONTWAIT);
  if (message.bytes == 0) socket_.reset();  // its keeper has ended
  return std::move(message.descriptors[0]);
}

std::vector<std::string> carry(files::Sender& sender, const os::Ends& ends, LaneSource* lanes) {
  return carry_on(Carrier(sender, ends, lanes));
}

std::vector<std::string> carry(files::Receiver& receiver, const os::Ends& ends, LaneSource* lanes) {
  return carry_on(Carrier(receiver, ends, lanes));
}

}  // namespace aplib::launch::pool
