// SPDX-License-Identifier: MIT
// TLS with a shared secret, through memory, without sockets.
#include "comm/tls.hpp"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <array>
#include <memory>
#include <string>

namespace aplib::comm {
namespace {

using Secret = std::array<std::byte, 32>;
struct Free {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using Ssl = std::unique_ptr<SSL, Free>;

struct Pair {
  explicit Pair(SSL_CTX* client_context, SSL_CTX* server_context)
      : client(SSL_new(client_context)), server(SSL_new(server_context)) {
    BIO* client_end = nullptr;
    BIO* server_end = nullptr;
    BIO_new_bio_pair(&client_end, 0, &server_end, 0);
    SSL_set_bio(client.get(), client_end, client_end);
    SSL_set_bio(server.get(), server_end, server_end);
    SSL_set_connect_state(client.get());
    SSL_set_accept_state(server.get());
  }
  /// Whether both completed the handshake.
  bool handshake() {
    for (int round = 0; round < 8; ++round) {
      const int by_client = SSL_do_handshake(client.get());
      const int by_server = SSL_do_handshake(server.get());
      if (by_client == 1 && by_server == 1) return true;
    }
    return false;
  }
  Ssl client;
  Ssl server;
};

Secret secret_of(int seed) {
  Secret secret;
  secret.fill(std::byte(seed));
  return secret;
}

TEST(Tls, OneSecretConnects) {
  const TlsContext tls;
  Pair pair(tls.native(), tls.native());
  set_tls_secret(pair.client.get(), secret_of(1));
  set_tls_secret(pair.client.get(), secret_of(2));  // the last one counts
  set_tls_secret(pair.server.get(), secret_of(2));
  ASSERT_TRUE(pair.handshake()) << take_tls_error();
  EXPECT_TRUE(tls_by_secret(pair.client.get()));
  EXPECT_TRUE(tls_by_secret(pair.server.get()));
  EXPECT_STREQ(SSL_get_version(pair.client.get()), "TLSv1.3");
  EXPECT_EQ(SSL_write(pair.client.get(), "hello", 5), 5);
  std::array<char, 16> got{};
  EXPECT_EQ(SSL_read(pair.server.get(), got.data(), got.size()), 5);
  EXPECT_STREQ(got.data(), "hello");
}

TEST(Tls, AnotherSecretDoesNot) {
  const TlsContext tls;
  Pair pair(tls.native(), tls.native());
  set_tls_secret(pair.client.get(), secret_of(1));
  set_tls_secret(pair.server.get(), secret_of(2));
  EXPECT_FALSE(pair.handshake());
  EXPECT_STRNE(take_tls_error(), "no reason given");
}

TEST(Tls, NoSecretDoesNot) {
  const TlsContext tls;
  for (const bool client_has_one : {true, false}) {
    Pair pair(tls.native(), tls.native());
    set_tls_secret(client_has_one ? pair.client.get() : pair.server.get(), secret_of(1));
    EXPECT_FALSE(pair.handshake());
    take_tls_error();
  }
  Pair plain(tls.native(), tls.native());
  EXPECT_FALSE(plain.handshake());
  take_tls_error();
}

TEST(Tls, AnOlderProtocolDoesNot) {
  const TlsContext tls;
  SSL_CTX* const old = SSL_CTX_new(TLS_method());
  SSL_CTX_set_max_proto_version(old, TLS1_2_VERSION);
  {
    Pair pair(old, tls.native());
    set_tls_secret(pair.server.get(), secret_of(1));
    EXPECT_FALSE(pair.handshake());
    take_tls_error();
  }
  SSL_CTX_free(old);
}

TEST(Tls, AContextCanBeShared) {
  SSL_CTX* shared = nullptr;
  {
    const TlsContext tls;
    shared = tls.share();
  }
  {
    Pair pair(shared, shared);
    set_tls_secret(pair.client.get(), secret_of(1));
    set_tls_secret(pair.server.get(), secret_of(1));
    EXPECT_TRUE(pair.handshake());
  }
  SSL_CTX_free(shared);
}

}  // namespace
}  // namespace aplib::comm
