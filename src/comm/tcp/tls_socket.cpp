// SPDX-License-Identifier: MIT
#include "comm/tcp/tls_socket.hpp"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include "aplib/error.hpp"

namespace aplib::comm {
namespace {

int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))); }

int write_socket(BIO* bio, const char* bytes, std::size_t count, std::size_t* written) {
  BIO_clear_retry_flags(bio);
  ssize_t done;
  do {
    done = ::send(socket_of(bio), bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (done < 0 && errno == EINTR);
  if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) BIO_set_retry_write(bio);
  *written = done > 0 ? static_cast<std::size_t>(done) : 0;
  return done > 0 ? 1 : 0;
}

int read_socket(BIO* bio, char* bytes, std::size_t count, std::size_t* read) {
  BIO_clear_retry_flags(bio);
  ssize_t done;
  do {
    done = ::recv(socket_of(bio), bytes, count, MSG_DONTWAIT);
  } while (done < 0 && errno == EINTR);
  if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
  if (done == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  *read = done > 0 ? static_cast<std::size_t>(done) : 0;
  return done > 0 ? 1 : 0;
}

long control_socket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

BIO_METHOD* make_method() {
  BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "aplib socket");
  if (method == nullptr) return nullptr;
  BIO_meth_set_write_ex(method, write_socket);
  BIO_meth_set_read_ex(method, read_socket);
  BIO_meth_set_ctrl(method, control_socket);
  return method;
}

}  // namespace

ssl_st* make_tls_on_socket(ssl_ctx_st* context, int socket) {
  static BIO_METHOD* const method = make_method();  // for the life of the process
  BIO* const bio = method != nullptr ? BIO_new(method) : nullptr;
  SSL* const ssl = SSL_new(context);
  if (bio == nullptr || ssl == nullptr) {
    BIO_free(bio);
    SSL_free(ssl);
    throw Error(Errc::exhausted, "secure=tls: no memory for a connection");
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  // Several records per system call.
  constexpr std::size_t read_bytes = 128 * 1024;
  SSL_set_read_ahead(ssl, 1);
  SSL_set_default_read_buffer_len(ssl, read_bytes);
  return ssl;
}

}  // namespace aplib::comm
