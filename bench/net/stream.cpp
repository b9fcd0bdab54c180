// SPDX-License-Identifier: MIT
#include "stream.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace net {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

class Socket {
 public:
  explicit Socket(int number) : number_(number) {
    const int on = 1;
    if (setsockopt(number_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        fcntl(number_, F_SETFL, fcntl(number_, F_GETFL) | O_NONBLOCK) != 0) {
      fail(std::string("a socket cannot be set up: ") + std::strerror(errno));
    }
  }
  ~Socket() { close(number_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

bool try_again(ssize_t count) { return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

class SocketStream : public Stream {
 public:
  explicit SocketStream(int socket) : socket_(socket) {}

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(count));
      } else if (!try_again(count)) {
        fail(std::string("the connection broke: ") + std::strerror(errno));
      }
    }
  }

  void read(std::span<std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = recv(socket_.number(), bytes.data(), bytes.size(), 0);
      if (count > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(count));
      } else if (!try_again(count)) {
        fail(count == 0 ? "the other end closed the connection"
                        : std::string("the connection broke: ") + std::strerror(errno));
      }
    }
  }

 private:
  Socket socket_;
};

template <class T, void (*free_it)(T*)>
struct Freed {
  void operator()(T* it) const { free_it(it); }
};
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, Freed<SSL, SSL_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;

[[noreturn]] void tls_fail(const std::string& what) {
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  fail(what + ": " + (reason != nullptr ? reason : "no reason given"));
}

// A key and a certificate for this run alone.
void certify(SSL_CTX* context) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  constexpr long lifetime_seconds = 3600;
  if (key == nullptr || certificate == nullptr || ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1) != 1 ||
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -lifetime_seconds) == nullptr ||
      X509_gmtime_adj(X509_getm_notAfter(certificate.get()), lifetime_seconds) == nullptr ||
      X509_set_pubkey(certificate.get(), key.get()) != 1 ||
      X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0 ||
      SSL_CTX_use_certificate(context, certificate.get()) != 1 || SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    tls_fail("OpenSSL: no certificate could be made");
  }
}

// TLS 1.3, AES-128-GCM, as in src/comm/tls.cpp. It reads ahead, so that a record takes one system call, not two.
class TlsStream : public Stream {
 public:
  TlsStream(int socket, bool server) : socket_(socket), context_(SSL_CTX_new(TLS_method())) {
    if (context_ == nullptr || SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context_.get(), "TLS_AES_128_GCM_SHA256") != 1) {
      tls_fail("OpenSSL cannot do TLS 1.3 with AES-128-GCM");
    }
    SSL_CTX_set_num_tickets(context_.get(), 0);
    SSL_CTX_set_read_ahead(context_.get(), 1);
    SSL_CTX_set_default_read_buffer_len(context_.get(), read_buffer_bytes);
    if (server) certify(context_.get());
    connection_.reset(SSL_new(context_.get()));
    if (connection_ == nullptr || SSL_set_fd(connection_.get(), socket_.number()) != 1) tls_fail("OpenSSL");
    repeat([&] { return server ? SSL_accept(connection_.get()) : SSL_connect(connection_.get()); });
  }

  void write(std::span<const std::byte> bytes) override {
    std::size_t count = 0;
    repeat([&] { return SSL_write_ex(connection_.get(), bytes.data(), bytes.size(), &count); });
  }

  void read(std::span<std::byte> bytes) override {
    while (!bytes.empty()) {
      std::size_t count = 0;
      repeat([&] { return SSL_read_ex(connection_.get(), bytes.data(), bytes.size(), &count); });
      bytes = bytes.subspan(count);
    }
  }

 private:
  static constexpr std::size_t read_buffer_bytes = 256 * 1024;

  template <class Operation>
  void repeat(Operation operation) {
    for (;;) {
      const int result = operation();
      if (result > 0) return;
      const int error = SSL_get_error(connection_.get(), result);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) tls_fail("the connection broke");
    }
  }

  Socket socket_;
  Context context_;
  Connection connection_;
};

}  // namespace

std::unique_ptr<Stream> make_stream(Kind kind, int socket, bool server) {
  if (kind == Kind::tls) return std::make_unique<TlsStream>(socket, server);
  return std::make_unique<SocketStream>(socket);
}

}  // namespace net
