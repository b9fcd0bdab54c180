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
#include "launch/files/lanes.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr const char* cut_off = "the connection was cut off before all files were there; the same command goes on";
constexpr const char* disorder = "the other end's lanes do not make a stream: is APlib of the same version there?";
// An end that is done closes all its lanes at once. Where one alone closes, the stream has lost what was in it.
constexpr auto last_words_patience = 5s;
constexpr std::size_t pieces_max = 16;  // that are read from a lane before others have their turn
constexpr std::size_t said_at_once_max = std::size_t{256} << 10;

wire::Bytes next_of(files::Sender& sender) { return sender.next(); }
wire::Bytes next_of(files::Receiver& receiver) { return receiver.reply(); }

struct Lane {
  os::UniqueFd own{};  // of the first lane, others close it
  int reader = -1;
  int writer = -1;
  bool hears = true;
  // The chunk that it has taken, and of which `at` bytes are written. Empty: none.
  files::ChunkHead head{};
  wire::Bytes bytes{};
  std::size_t at = 0;
};

template <class End>
class Carrier {
 public:
  Carrier(End& end, const os::Ends& ends, LaneSource* source) : end_(end), source_(source) {
    add({.reader = ends.reader.get(), .writer = ends.writer.get()});
  }

  std::vector<std::string> run() {
    bool is_heard = speak();
    while (is_heard && in_order_ && !is_over()) {
      if (!wait()) break;
      if (lanes_come_) take_lanes();
      for (std::size_t i = 0; i < lanes_.size(); ++i)
        if (lanes_[i].hears) listen(i);
      is_heard = speak();
      if (source_ != nullptr) source_->want(growth_.wanted(Clock::now(), joiner_.joined() + said_, lanes_.size()));
    }
    std::vector<std::string> problems = end_.outcome().problems;
    if (end_.outcome().more_problems != 0)
      problems.push_back(fmt::format("and {} more files", end_.outcome().more_problems));
    if (!end_.ended() && problems.empty()) problems.emplace_back(in_order_ ? cut_off : disorder);
    return problems;
  }

 private:
  void add(Lane lane) {
    for (const int fd : {lane.reader, lane.writer}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    lanes_.push_back(std::move(lane));
  }

  void take_lanes() {
    for (os::UniqueFd socket = source_->take(); socket; socket = source_->take()) {
      if (lanes_.size() == files::lanes_max) continue;
      const int fd = socket.get();
      add({.own = std::move(socket), .reader = fd, .writer = fd});
    }
  }

  [[nodiscard]] bool is_over() const {
    if (end_.ended()) return !has_unsent();
    for (const Lane& lane : lanes_)
      if (lane.hears) return closed_since_ && Clock::now() - *closed_since_ > last_words_patience;
    return true;
  }
  [[nodiscard]] bool has_unsent() const {
    if (!unsaid_.empty()) return true;
    for (const Lane& lane : lanes_)
      if (!lane.bytes.empty()) return true;
    return false;
  }

  /// False: the system cannot.
  bool wait() {
    std::vector<pollfd> fds;
    for (const Lane& lane : lanes_) {
      fds.push_back({lane.hears ? lane.reader : -1, POLLIN, 0});
      fds.push_back({lane.bytes.empty() ? -1 : lane.writer, POLLOUT, 0});
    }
    fds.push_back({source_ == nullptr ? -1 : source_->fd(), POLLIN, 0});
    const int patience = closed_since_ ? 1000 : -1;
    const int ready = ::poll(fds.data(), fds.size(), patience);
    lanes_come_ = ready > 0 && fds.back().revents != 0;
    return ready >= 0 || errno == EINTR;
  }

  /// What the other end says.
  void listen(std::size_t number) {
    Lane& lane = lanes_[number];
    std::array<std::byte, 65536> piece;
    for (std::size_t i = 0; i < pieces_max && in_order_; ++i) {
      const ssize_t got = ::read(lane.reader, piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) {
        lane.hears = false;
        if (!closed_since_) closed_since_ = Clock::now();
        return;
      }
      const auto bytes = std::span<const std::byte>(piece).first(static_cast<std::size_t>(got));
      in_order_ = joiner_.take(number, bytes, [this](std::span<const std::byte> next) { end_.take(next); });
      if (bytes.size() < piece.size()) return;
    }
  }

  /// Says what is to be said, by whichever lanes take it. A receiver says little, and that by the first lane. False:
  /// nobody hears it any more.
  bool speak() {
    for (Lane& lane : lanes_) {
      while (!lane.bytes.empty() || fill(lane)) {
        if (!write(lane)) {
          if (errno == EAGAIN) break;
          return false;
        }
      }
      if (std::is_same_v<End, files::Receiver>) return true;
    }
    return true;
  }

  /// Gives it the next chunk, if there is one.
  bool fill(Lane& lane) {
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

  /// False: errno says why.
  static bool write(Lane& lane) {
    const std::size_t of_head = std::min(lane.at, lane.head.size());
    const std::size_t of_bytes = lane.at - of_head;
    std::array<iovec, 2> parts{{{lane.head.data() + of_head, lane.head.size() - of_head},
                                {lane.bytes.data() + of_bytes, lane.bytes.size() - of_bytes}}};
    ssize_t written = 0;
    do {
      written = ::writev(lane.writer, parts.data(), parts.size());
    } while (written < 0 && errno == EINTR);
    if (written < 0) return false;
    lane.at += static_cast<std::size_t>(written);
    if (lane.at == lane.head.size() + lane.bytes.size()) lane.bytes.clear();
    return true;
  }

  End& end_;
  LaneSource* const source_;
  std::deque<Lane> lanes_;
  files::LaneJoiner joiner_{files::window_bytes};
  files::LaneGrowth growth_;
  wire::Bytes unsaid_;
  std::uint64_t said_ = 0;  // bytes of the stream
  std::optional<Clock::time_point> closed_since_{};
  bool lanes_come_ = false;
  bool in_order_ = true;
};

}  // namespace

os::UniqueFd PassedLanes::take() {
  std::byte nothing{};
  os::ReceivedMessage message = os::receive_message(socket_.get(), std::span(&nothing, 1), MSG_DONTWAIT);
  if (message.bytes == 0) socket_.reset();  // its keeper has ended
  return std::move(message.descriptors[0]);
}

std::vector<std::string> carry(files::Sender& sender, const os::Ends& ends, LaneSource* lanes) {
  return Carrier(sender, ends, lanes).run();
}

std::vector<std::string> carry(files::Receiver& receiver, const os::Ends& ends, LaneSource* lanes) {
  return Carrier(receiver, ends, lanes).run();
}

}  // namespace aplib::launch::pool
