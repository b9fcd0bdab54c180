// SPDX-License-Identifier: MIT
// A TLS connection over a socket of ours: as SSL_set_fd(), but a closed connection is an error and never a signal (SIGPIPE).
#pragma once

struct ssl_st;
struct ssl_ctx_st;

namespace aplib::comm {

/// A new connection on a non-blocking socket, which stays the caller's. Free with SSL_free(). Throws Error(exhausted).
[[nodiscard]] ssl_st* make_tls_on_socket(ssl_ctx_st* context, int socket);

}  // namespace aplib::comm
