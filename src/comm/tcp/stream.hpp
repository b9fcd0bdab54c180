// SPDX-License-Identifier: MIT
// TcpStream: one connection after its greeting, plain or in TLS, as non-blocking reads and writes.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

struct ssl_st;

namespace aplib::comm {

/// Thread safety: one thread may read while another writes.
class TcpStream {
 public:
  enum class Kind : std::uint8_t { moved, not_now, end, failed };
  struct Result {
    Kind kind;
    std::size_t bytes = 0;
  };

  /// Owns both. `ssl`: after its handshake, on this socket; or null.
  TcpStream(int socket, ssl_st* ssl);
  ~TcpStream();
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  [[nodiscard]] int socket() const noexcept { return socket_; }
  [[nodiscard]] bool encrypted() const noexcept { return tls_ != nullptr; }

  /// Reads into the pieces, in order, what is there: one system call.
  [[nodiscard]] Result read(std::span<const iovec> pieces) noexcept;
  /// Writes of the pieces, in order, what goes. After not_now, the next write must begin with the same bytes, and no fewer.
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

}  // namespace aplib::comm
