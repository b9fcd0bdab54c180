// SPDX-License-Identifier: MIT
#include "comm/digest.hpp"

#include <openssl/evp.h>

#include <algorithm>

#include "aplib/error.hpp"

namespace aplib::comm {
namespace {

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

[[noreturn]] void fail() {
  throw Error(Errc::failed,
              "the cryptographic library (OpenSSL) cannot compute SHA-256; is its installation complete, and is there "
              "memory for it (ulimit -v)?");
}

Context make_context() {
  Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!context) fail();
  return context;
}

}  // namespace

struct Sha256::Impl {
  Context context = make_context();
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  if (EVP_DigestInit_ex(impl_->context.get(), EVP_sha256(), nullptr) != 1) fail();
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size()) != 1) fail();
}

void Sha256::add_zeros(std::uint64_t count) {
  static constexpr std::array<std::byte, std::size_t{64} << 10> zeros{};
  while (count != 0) {
    const auto some = static_cast<std::size_t>(std::min<std::uint64_t>(count, zeros.size()));
    add(std::span(zeros).first(some));
    count -= some;
  }
}

Digest Sha256::digest() const {
  const Context copy = make_context();
  Digest digest;
  unsigned written = 0;
  if (EVP_MD_CTX_copy_ex(copy.get(), impl_->context.get()) != 1 ||
      EVP_DigestFinal_ex(copy.get(), reinterpret_cast<unsigned char*>(digest.data()), &written) != 1 ||
      written != digest.size())
    fail();
  return digest;
}

}  // namespace aplib::comm
