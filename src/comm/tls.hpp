// SPDX-License-Identifier: MIT
// TLS 1.3 between processes of one machine: no certificates, but a secret that both have from their greeting
// (greeting.hpp), as an external pre-shared key, with a fresh Diffie-Hellman exchange, so that who learns the job's
// key later cannot read what was recorded.
//
//   // a non-blocking socket                               // Boost.Asio
//   ssl_st* ssl = make_tls_on_socket(tls.native(), fd);    ssl::context context(tls.share());
//                                                          ssl::stream<Socket&> stream(socket, context);
//   set_tls_secret(ssl, greeting.secret());                set_tls_secret(stream.native_handle(), greeting.secret());
//   SSL_connect(ssl) ... SSL_accept(ssl)                   stream.async_handshake(...)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

// The library's own names for its structures, so that its headers stay out of ours.
struct ssl_st;
struct ssl_ctx_st;

namespace aplib::comm {

/// What connections share: protocol, cipher, that there are no tickets and no certificates. One per process is
/// enough. Thread safety: any thread.
class TlsContext {
 public:
  /// Throws Error(failed) when the cryptographic library has no TLS 1.3.
  TlsContext();

  /// Stays the context's.
  [[nodiscard]] ssl_ctx_st* native() const noexcept { return context_.get(); }
  /// One more reference, the caller's: what boost::asio::ssl::context's constructor takes and frees.
  [[nodiscard]] ssl_ctx_st* share() const noexcept;

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const noexcept;
  };
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

/// Before the handshake: the secret that both sides of this connection share. It is copied, and wiped when `ssl` is
/// freed. A handshake with another one, or with none, fails. Throws Error(exhausted).
void set_tls_secret(ssl_st* ssl, std::span<const std::byte, 32> secret);

/// After the handshake: was it by the shared secret? Never false after a handshake that succeeded; for a check in
/// depth.
[[nodiscard]] bool tls_by_secret(const ssl_st* ssl) noexcept;

/// Goes on with a handshake by that secret on a non-blocking socket, as the side that answers or calls.
enum class TlsStep : std::uint8_t { done, waits_to_read, waits_to_write, failed };
[[nodiscard]] TlsStep shake_hands(ssl_st* ssl, bool answers) noexcept;

struct FreeTls {
  void operator()(ssl_st* ssl) const noexcept;
};

/// What the library complains about on this thread, for people; forgets it. Valid for ever.
const char* take_tls_error() noexcept;

/// A new connection on a non-blocking socket, which stays the caller's: as SSL_set_fd(), but a closed connection is an
/// error and never a signal (SIGPIPE). Free with SSL_free(). Throws Error(exhausted).
[[nodiscard]] ssl_st* make_tls_on_socket(ssl_ctx_st* context, int socket);

}  // namespace aplib::comm
