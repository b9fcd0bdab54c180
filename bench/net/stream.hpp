// SPDX-License-Identifier: MIT
// Stream: one end of a connection between two processes, with nothing but the system's sockets, or OpenSSL on them.
// Sockets never block. Both ends poll, which is fastest on a core each.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace net {

/// What carries the bytes.
enum class Kind { sockets, tls };

/// One end. Throws std::runtime_error when the other end is gone.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Returns when the system has taken all bytes.
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Returns when all bytes have arrived.
  virtual void read(std::span<std::byte> bytes) = 0;
};

/// Owns `socket`, a connected TCP socket. `server`: the role in the TLS handshake.
[[nodiscard]] std::unique_ptr<Stream> make_stream(Kind kind, int socket, bool server);

}  // namespace net
