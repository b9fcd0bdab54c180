// SPDX-License-Identifier: MIT
#include "comm/tls.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

#include "aplib/error.hpp"
#include "comm/job_key.hpp"

namespace aplib::comm {
namespace {

constexpr unsigned char identity[] = "aplib";
constexpr std::size_t identity_bytes = sizeof identity - 1;

struct Secret {
  std::array<std::byte, 32> bytes;
};

// The library calls this when an SSL ends.
void free_secret(void*, void* data, CRYPTO_EX_DATA*, int, long, void*) {
  auto* const secret = static_cast<Secret*>(data);
  if (secret != nullptr) wipe(secret->bytes);
  delete secret;
}

int secret_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_secret);
  return index;
}

// The "session" that an external pre-shared key looks like to the library. Null: no secret was set, or no memory.
SSL_SESSION* session_of(SSL* ssl) {
  const auto* const secret = static_cast<const Secret*>(SSL_get_ex_data(ssl, secret_index()));
  if (secret == nullptr) return nullptr;
  constexpr unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
  SSL_SESSION* const session = SSL_SESSION_new();
  const auto* const bytes = reinterpret_cast<const unsigned char*>(secret->bytes.data());
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, bytes, secret->bytes.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1 &&
      SSL_SESSION_set1_id_context(session, identity, identity_bytes) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int use_session(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_bytes, SSL_SESSION** session) {
  *session = session_of(ssl);
  *id = identity;
  *id_bytes = identity_bytes;
  return *session != nullptr ? 1 : 0;
}

int find_session(SSL* ssl, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** session) {
  *session = id_bytes == identity_bytes && std::memcmp(id, identity, identity_bytes) == 0 ? session_of(ssl) : nullptr;
  return 1;  // without a session the handshake goes on to certificates, of which there are none: it fails
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const noexcept { SSL_CTX_free(context); }

TlsContext::TlsContext() : context_(SSL_CTX_new(TLS_method())) {
  SSL_CTX* const context = context_.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 || secret_index() < 0) {
    throw Error(Errc::failed,
                std::string("secure=tls: the cryptographic library (OpenSSL) cannot do TLS 1.3 with AES-128-GCM (") +
                    take_tls_error() + "); does its configuration forbid it?");
  }
  SSL_CTX_set_psk_use_session_callback(context, use_session);
  SSL_CTX_set_psk_find_session_callback(context, find_session);
  // A server without the secret would have to show a certificate, and no one is trusted to have signed it.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_session_id_context(context, identity, identity_bytes);  // who verifies must name one
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

ssl_ctx_st* TlsContext::share() const noexcept {
  SSL_CTX_up_ref(context_.get());
  return context_.get();
}

void set_tls_secret(ssl_st* ssl, std::span<const std::byte, 32> secret) {
  auto* const copy = new (std::nothrow) Secret;
  if (copy != nullptr) std::copy(secret.begin(), secret.end(), copy->bytes.begin());
  void* const before = SSL_get_ex_data(ssl, secret_index());
  if (copy == nullptr || SSL_set_ex_data(ssl, secret_index(), copy) != 1) {
    free_secret(nullptr, copy, nullptr, 0, 0, nullptr);
    throw Error(Errc::exhausted, "secure=tls: no memory for a connection");
  }
  free_secret(nullptr, before, nullptr, 0, 0, nullptr);
}

bool tls_by_secret(const ssl_st* ssl) noexcept { return SSL_session_reused(ssl) == 1; }

TlsStep shake_hands(ssl_st* ssl, bool answers) noexcept {
  ERR_clear_error();
  const int good = answers ? SSL_accept(ssl) : SSL_connect(ssl);
  if (good == 1) return TlsStep::done;
  const int reason = SSL_get_error(ssl, good);
  if (reason == SSL_ERROR_WANT_READ) return TlsStep::waits_to_read;
  return reason == SSL_ERROR_WANT_WRITE ? TlsStep::waits_to_write : TlsStep::failed;
}

void FreeTls::operator()(ssl_st* ssl) const noexcept { SSL_free(ssl); }

const char* take_tls_error() noexcept {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return reason != nullptr ? reason : "no reason given";
}

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
  // One system call reads several records.
  constexpr std::size_t read_bytes = 128 * 1024;
  SSL_set_read_ahead(ssl, 1);
  SSL_set_default_read_buffer_len(ssl, read_bytes);
  return ssl;
}

}  // namespace aplib::comm
