// SPDX-License-Identifier: MIT
// Sha256: the checksum by which two ends of a connection know that they have the same bytes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

namespace aplib::comm {

using Digest = std::array<std::byte, 32>;

/// SHA-256 of bytes that come in pieces. One thread at a time. Everything throws Error(failed) when the cryptographic
/// library fails.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void add(std::span<const std::byte> bytes);
  /// As many zeros.
  void add_zeros(std::uint64_t count);
  /// Of all bytes so far. More may be added afterwards.
  [[nodiscard]] Digest digest() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::comm
