// SPDX-License-Identifier: MIT
// Stream: one connection after its greeting, plain or in TLS, as non-blocking reads and writes.
#pragma once

#include <sys/uio.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

struct ssl_st;

namespace aplib::comm::tcp {

/// Thread safety: one thread may read while another writes.
class Stream {
 public:
  enum class Kind : std::uint8_t { moved, not_now, end, failed };
  struct Result {
    Kind kind;
    std::size_t bytes = 0;
  };

  /// Owns both. `ssl`: after its handshake, on this socket; or null.
  Stream(int socket, ssl_st* ssl);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] int socket() const noexcept { return socket_; }
  [[nodiscard]] bool encrypted() const noexcept { return tls_ != nullptr; }

  /// Reads what has come into the pieces, in order, by one system call.
  [[nodiscard]] Result read(std::span<const iovec> pieces) noexcept;
  /// Writes of the pieces, in order, what goes. After not_now, the next write must begin with the same bytes, and
  /// no fewer.
  [[nodiscard]] Result write(std::span<const iovec> pieces) noexcept;
  /// Bytes were taken from the socket that read() has not given yet: the system does not tell of them any more.
  [[nodiscard]] bool read_ahead() const noexcept { return ahead_; }

  /// How many bytes the system has not sent yet, or the other side has not acknowledged. -1: the socket is gone.
  [[nodiscard]] long unacknowledged() const noexcept;
  /// No more will be written.
  void end_writing() noexcept;
  /// Both sides end now; reading and writing fail. Any thread.
  void break_off() noexcept;

  /// After Kind::failed of either: "connection reset by peer".
  [[nodiscard]] std::string failure() const;

 private:
  struct Tls;
  Result read_tls(std::span<const iovec> pieces) noexcept;
  Result write_tls(std::span<const iovec> pieces) noexcept;
  Result fail(int error) noexcept;

  int socket_;
  bool ahead_ = false;          // The reading thread's.
  std::atomic<int> error_ = 0;  // errno of the failure; -1: TLS.
  std::unique_ptr<Tls> tls_;
};

/// What an errno of a connection means, for people: "connection reset by peer".
[[nodiscard]] std::string describe_connection_error(int error);

/// For every socket of the module, before it connects or right after it was accepted: no delays; a connection that
/// nobody answers ends after `timeout`, also while it is being made.
void prepare_socket(int socket, std::chrono::milliseconds timeout) noexcept;

/// The greeting is over. From here on the module itself judges whether the other host answers: TCP_USER_TIMEOUT
/// includes the time for which the window is closed, so the system would take a host for dead whose program does
/// not read for a while. Keepalive goes on, for connections on which nothing is under way. The system chooses the size
/// of the buffers, because it fits them to bandwidth and delay.
void prepare_for_frames(int socket) noexcept;

/// The round trip as the system has measured it; 0: not yet.
[[nodiscard]] std::chrono::microseconds round_trip(int socket) noexcept;

/// The socket says that it has room only while the system has little left to send, so that of several connections each
/// takes what it can send soon.
void pull_by_room(int socket, std::size_t unsent_bytes) noexcept;

/// What the system reports of a connection that sends.
struct Progress {
  std::uint64_t bytes_per_second = 0;  ///< As the other side has lately acknowledged them.
  std::uint64_t busy = 0;              ///< Microseconds with something to send,
  std::uint64_t limited = 0;           ///< and with no room in a buffer, the own or the other side's.
};
/// Zeros where the system does not know.
[[nodiscard]] Progress progress_of(int socket) noexcept;

/// Whether the other host answers.
class AnswerWatch {
 public:
  using Clock = std::chrono::steady_clock;
  /// False: something is on its way, and nothing was acknowledged within `timeout`.
  [[nodiscard]] bool look(const Stream& stream, Clock::time_point now, std::chrono::milliseconds timeout) noexcept;
  /// Something was on its way at the last look.
  [[nodiscard]] bool waits() const noexcept { return since_.has_value(); }
  [[nodiscard]] static std::string words(std::chrono::milliseconds timeout) {
    return "no answer for " + std::to_string(timeout.count() / 1000) + " s";
  }

 private:
  std::optional<Clock::time_point> since_{};
};

// OutQueue: the bytes of one connection that the system has not taken yet, in order. Small frames gather in its
// last chunk and go out together. The rest of a large body gets a chunk of its own.

/// Thread safety: none; the connection's lock.
class OutQueue {
 public:
  static constexpr std::size_t chunk_bytes = 64 * 1024;

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }

  /// Copies both, one behind the other, to the end. Throws std::bad_alloc: then nothing was added.
  void append(std::span<const std::byte> first, std::span<const std::byte> second = {}) {
    const std::size_t all = first.size() + second.size();
    const std::size_t room = chunks_.empty() ? 0 : chunks_.back().capacity - chunks_.back().end;
    if (all > room) chunks_.push_back(make_chunk(all - room));
    const std::size_t last = chunks_.size() - 1;
    for (std::span<const std::byte> bytes : {first, second}) {
      if (all > room && last != 0) bytes = bytes.subspan(fill(chunks_[last - 1], bytes));
      fill(chunks_[last], bytes);
    }
    bytes_ += all;
  }

  /// The first bytes, as pieces for one system call. Returns how many pieces.
  [[nodiscard]] std::size_t peek(std::span<iovec> pieces) const noexcept {
    std::size_t count = 0;
    for (auto chunk = chunks_.begin(); chunk != chunks_.end() && count < pieces.size(); ++chunk) {
      if (chunk->begin == chunk->end) continue;
      pieces[count++] = {chunk->bytes.get() + chunk->begin, chunk->end - chunk->begin};
    }
    return count;
  }

  /// The first `count` bytes are taken. Returns how many of `count` were the queue's: fewer when it had fewer.
  std::size_t remove(std::size_t count) noexcept {
    const std::size_t taken = std::min(count, bytes_);
    bytes_ -= taken;
    for (std::size_t left = taken; left != 0;) {
      Chunk& first = chunks_.front();
      const std::size_t part = std::min(left, first.end - first.begin);
      first.begin += part;
      left -= part;
      if (first.begin == first.end) recycle();
    }
    return taken;
  }

  void clear() noexcept {
    chunks_.clear();
    bytes_ = 0;
  }

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t capacity = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// Copies as much as fits; returns how much that is.
  static std::size_t fill(Chunk& chunk, std::span<const std::byte> bytes) noexcept {
    const std::size_t count = std::min(chunk.capacity - chunk.end, bytes.size());
    if (count != 0) std::memcpy(chunk.bytes.get() + chunk.end, bytes.data(), count);
    chunk.end += count;
    return count;
  }

  Chunk make_chunk(std::size_t at_least) {
    if (at_least <= chunk_bytes && spare_.bytes) return std::exchange(spare_, {});
    const std::size_t capacity = std::max(at_least, chunk_bytes);
    return {std::make_unique_for_overwrite<std::byte[]>(capacity), capacity};
  }

  /// One chunk of the usual size is kept, so that a steady stream allocates nothing.
  void recycle() noexcept {
    Chunk first = std::move(chunks_.front());
    chunks_.pop_front();
    if (first.capacity != chunk_bytes || spare_.bytes) return;
    first.begin = first.end = 0;
    spare_ = std::move(first);
  }

  std::deque<Chunk> chunks_;
  Chunk spare_;
  std::size_t bytes_ = 0;
};

}  // namespace aplib::comm::tcp
