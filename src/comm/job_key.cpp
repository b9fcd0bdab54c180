// SPDX-License-Identifier: MIT
#include "comm/job_key.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "aplib/error.hpp"

namespace aplib::comm {
namespace {

[[noreturn]] void fail(const char* what) {
  throw Error(Errc::failed, std::string("job key: the cryptographic library (OpenSSL) cannot ") + what +
                                "; is its installation complete, and is there memory for it (ulimit -v)?");
}

unsigned char* raw(std::byte* bytes) noexcept { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) noexcept { return reinterpret_cast<const unsigned char*>(bytes); }

int digit(char c) noexcept {
  constexpr int letters_from = 10;
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + letters_from;
  if (c >= 'A' && c <= 'F') return c - 'A' + letters_from;
  return -1;
}

// exit() would free what libcrypto has, while the threads of our links still greet others. Before anybody uses it.
const int kept_at_exit = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

}  // namespace

JobKey JobKey::make() {
  JobKey key;
  fill_random(key.bytes_);
  return key;
}

std::optional<JobKey> JobKey::from_hex(std::string_view text) noexcept {
  if (text.size() != 2 * size) return std::nullopt;
  JobKey key;
  for (std::size_t i = 0; i < size; ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.bytes_[i] = static_cast<std::byte>(high << 4 | low);
  }
  return key;
}

JobKey JobKey::from_bytes(std::span<const std::byte, size> bytes) noexcept {
  JobKey key;
  std::copy(bytes.begin(), bytes.end(), key.bytes_.begin());
  return key;
}

JobKey::~JobKey() { wipe(bytes_); }

std::string JobKey::reveal_hex() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * size);
  for (const std::byte byte : bytes_) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

void wipe(std::span<std::byte> bytes) noexcept { OPENSSL_cleanse(bytes.data(), bytes.size()); }

std::array<std::byte, 32> keyed_hash(const JobKey& key, std::span<const std::span<const std::byte>> parts) {
  const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr), EVP_MAC_free);
  if (!mac) fail("offer HMAC");
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(EVP_MAC_CTX_new(mac.get()), EVP_MAC_CTX_free);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                   OSSL_PARAM_construct_end()};
  std::array<std::byte, 32> hash;
  std::size_t written = 0;
  bool good = context && EVP_MAC_init(context.get(), raw(key.secret().data()), JobKey::size, parameters) == 1;
  for (const auto& part : parts) good = good && EVP_MAC_update(context.get(), raw(part.data()), part.size()) == 1;
  good = good && EVP_MAC_final(context.get(), raw(hash.data()), &written, hash.size()) == 1;
  if (!good || written != hash.size()) fail("compute HMAC-SHA256");
  return hash;
}

std::array<std::byte, 32> derive_secret(const JobKey& key, std::span<const std::byte> salt, std::string_view purpose) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr), EVP_KDF_free);
  if (!kdf) fail("offer HKDF");
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(kdf.get()), EVP_KDF_CTX_free);
  char digest[] = "SHA256";
  // The library's parameters are not const, and it does not write to these.
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(key.secret().data()), JobKey::size),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, const_cast<std::byte*>(salt.data()), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(purpose.data()), purpose.size()),
      OSSL_PARAM_construct_end()};
  std::array<std::byte, 32> secret;
  if (!context || EVP_KDF_derive(context.get(), raw(secret.data()), secret.size(), parameters) != 1)
    fail("compute HKDF-SHA256");
  return secret;
}

JobKey relay_key(const JobKey& key, std::string_view machine) {
  return JobKey::from_bytes(derive_secret(key, std::as_bytes(std::span(machine)), "aplib relay key"));
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(Errc::failed, std::string("job key: the system's getrandom gives no random bytes: ") +
                                    std::generic_category().message(errno) +
                                    "; does a filter of system calls (seccomp) refuse it?");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace aplib::comm
