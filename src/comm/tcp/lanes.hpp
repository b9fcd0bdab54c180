// SPDX-License-Identifier: MIT
// Lanes: how a long link talks: by several connections, each of which may end. A link is long when its way is a relay,
// when its round trip is long, or when option `streams` asks for several connections.
//
// The frames of each direction are one stream of bytes. It goes in chunks (chunk.hpp), by whichever lane has room, and
// what has come is put in order again (inflow.hpp). What the other side has not acknowledged is kept (outflow.hpp). So
// lanes are equal, and each can be done without: what one had that has ended goes by another. Without any, the link is
// cut; it goes on when there is one again. Whoever makes connections (service.cpp) asks by need() how many it lacks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/frame.hpp"
#include "comm/tcp/inflow.hpp"
#include "comm/tcp/lane_growth.hpp"
#include "comm/tcp/outflow.hpp"
#include "comm/tcp/stream.hpp"

namespace aplib::comm::tcp {

class Lanes {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t most = 64;

  /// What whoever makes connections is to do.
  struct Need {
    unsigned lanes = 0;                      ///< So many more are wanted.
    std::optional<Clock::time_point> cut{};  ///< Since when there has been none.
    std::string why{};                       ///< The last one ended.
  };
  enum class Reading : std::uint8_t {
    nothing,
    wrote,      ///< Perhaps; what waits may have changed.
    something,  ///< The same, and something has come.
    over,       ///< The stream, or one of the other side's words, is refused.
  };

  /// `lock`: the link's. `ask`: need() has changed; with the lock held. Throws Error(exhausted).
  Lanes(std::mutex& lock, std::function<void()> ask, LaneGrowth growth);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// Readable when read() has something to do.
  [[nodiscard]] int descriptor() const noexcept { return epoll_.get(); }

  // With the lock held. What fails for want of memory throws std::bad_alloc: then the link cannot go on.

  /// More than `most`, or one too late, is closed. False: the system cannot watch it; errno says why.
  [[nodiscard]] bool add(std::unique_ptr<Stream> stream);
  /// Takes a frame.
  void send(std::span<const std::byte, frame_header_bytes> header, std::span<const std::byte> body);
  /// Writes what waits, as far as it goes.
  void write();
  /// No more frames follow.
  void end();
  /// Bytes that the system has not taken yet.
  [[nodiscard]] std::size_t waiting() const noexcept;
  /// Something that was sent is not acknowledged. Not for long, where the other host has it and its program does not
  /// take it.
  [[nodiscard]] bool on_its_way() noexcept;
  [[nodiscard]] Need need() const;
  /// More than there are cannot be had.
  void limit() noexcept { growth_.limit(static_cast<unsigned>(standing())); }
  [[nodiscard]] std::size_t standing() const noexcept;
  /// Lanes on which nothing was acknowledged for so long end. Returns whether anything is on its way.
  [[nodiscard]] bool check_answers(std::chrono::milliseconds timeout);
  /// What is to be sent is forgotten.
  void drop() noexcept { out_.clear(); }

  // The polling thread, without the lock.

  void begin(FrameReader& reader) noexcept { in_.read_by(reader); }
  /// The other side has ended its stream in order: tells it that this was heard. Nothing is written any more. With the
  /// lock held.
  void say_farewell() noexcept;
  /// One read of each lane that has something. `why`: of Reading::over.
  [[nodiscard]] Reading read(bool wanted, std::string& why);
  /// read() has something to do, though the system reports nothing.
  [[nodiscard]] bool read_ahead() const noexcept { return !ahead_.empty() || fresh_.load() || in_.stands_ready(); }
  /// What comes is taken and forgotten.
  void discard() { in_.discard(); }
  /// All that the other side sends was taken, to the ordered end.
  [[nodiscard]] bool complete() const noexcept { return in_.complete(); }

  /// Calls of the system. Any thread.
  [[nodiscard]] std::uint64_t calls() const noexcept { return reads_.load() + writes_.load(); }

 private:
  struct Lane;
  /// What a read has brought that concerns the sending half.
  struct News {
    std::uint64_t acknowledged = 0;
    unsigned lanes = 0;     // The other side would use.
    bool writable = false;  // Some lane.
    bool ended = false;     // Some lane.
    std::string refusal{};
  };

  // With the lock held.
  void write(Lane& lane);
  bool begin_chunk(Lane& lane);
  /// False, errno set: the polling thread cannot be told.
  [[nodiscard]] bool set_full(Lane& lane, bool full) noexcept;
  void give_up(Lane& lane, const std::string& why);
  void remove_ended();
  void note_pressure();
  void report();
  [[nodiscard]] std::string heed(const News& news);

  // The polling thread, without the lock.
  bool look(News& news);
  bool read_lane(Lane& lane, News& news);
  bool parse(Lane& lane, News& news);
  bool begin_reading(Lane& lane, News& news);

  std::mutex& lock_;
  const std::function<void()> ask_;
  os::UniqueFd epoll_;

  std::vector<std::unique_ptr<Lane>> lanes_;  // The polling thread alone removes, and so may use what is there.
  Outflow out_;
  LaneGrowth growth_;
  unsigned peer_wants_ = 1;
  std::optional<Clock::time_point> cut_;
  std::string last_end_;            // Why the last lane ended.
  std::uint64_t last_write_ = 0;    // In cycles().
  double round_trip_ = 0;           // Seconds, the shortest that was seen.
  std::uint64_t timed_offset_ = 0;  // A round trip is measured: until so much is acknowledged,
  double timed_from_ = 0;           // from that time on. 0: none is.
  bool over_ = false;
  std::optional<Clock::time_point> there_since_;  // on_its_way()

  // The polling thread's.
  Inflow in_;
  std::vector<Lane*> ahead_;  // Bytes were taken from their sockets and not read.
  std::uint64_t looked_ = 0;  // In cycles().
  std::uint64_t owed_ = 0;    // What is to be acknowledged; under the lock.
  bool owes_ = false;         // Under the lock.

  std::atomic<std::uint64_t> published_ = 0;  // Lanes that were added: says in C++ what the epoll says already.
  std::atomic<bool> fresh_ = false;           // A lane was added that may have read ahead.
  std::atomic<std::uint64_t> reads_ = 0;
  std::atomic<std::uint64_t> writes_ = 0;
};

}  // namespace aplib::comm::tcp
