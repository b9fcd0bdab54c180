// SPDX-License-Identifier: MIT
// Stream: one end of a connection between two processes, with nothing but the system's sockets, or OpenSSL on them.
// Sockets never block: both ends poll, which on a core of one's own is the fastest that there is.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace net {

/// What the bytes go through.
enum class Kind { sockets, tls };

/// One end. Throws std::runtime_error when the other is gone.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Returns when the system has taken all of it.
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Returns when all of it has come.
  virtual void read(std::span<std::byte> bytes) = 0;
};

/// Owns `socket`, a connected TCP socket. `server`: takes that part in the handshake of TLS.
[[nodiscard]] std::unique_ptr<Stream> make_stream(Kind kind, int socket, bool server);

}  // namespace net
