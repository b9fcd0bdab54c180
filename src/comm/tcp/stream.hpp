// SPDX-License-Identifier: MIT
// Stream: one connection after its greeting, plain or in TLS, as non-blocking reads and writes.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
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

  /// Reads into the pieces, in order, what is there: one system call.
  [[nodiscard]] Result read(std::span<const iovec> pieces) noexcept;
  /// Writes of the pieces, in order, what goes. After not_now, the next write must begin with the same bytes, and
  /// no fewer.
  [[nodiscard]] Result write(std::span<const iovec> pieces) noexcept;
  /// Bytes were taken from the socket that read() has not given yet: the system does not tell of them any more.
  [[nodiscard]] bool read_ahead() const noexcept { return ahead_; }

  /// Bytes that the other side has not acknowledged, or the system not even sent. -1: cannot be told any more.
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

// What every socket of the module is told, before it connects or right after it was accepted.
/// No delays; a connection that nobody answers ends after `timeout`, also while it is being made.
void prepare_socket(int socket, std::chrono::milliseconds timeout) noexcept;

/// The greeting is over. From here on the module itself judges whether the other host answers: TCP_USER_TIMEOUT
/// includes the time for which the window is closed, so the system would take a host for dead whose program does
/// not read for a while. Keepalive goes on, for connections on which nothing is under way. Between hosts the system
/// chooses the size of the buffers, because it fits them to bandwidth and delay.
void prepare_for_frames(int socket) noexcept;

/// The round trip as the system has measured it; 0: not yet.
[[nodiscard]] std::chrono::microseconds round_trip(int socket) noexcept;

}  // namespace aplib::comm::tcp
