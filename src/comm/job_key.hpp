// SPDX-License-Identifier: MIT
// JobKey: the secret of one machine, made by the launcher and handed to every process of it. Who proves to know it
// belongs to the machine; see greeting.hpp for the proof.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace aplib::comm {

/// 32 random bytes. Copies are wiped when they end. There is no way to print one but by asking for its text.
/// Thread safety: as std::array. Call from: any thread.
class JobKey {
 public:
  static constexpr std::size_t size = 32;

  /// A new one, from the system's generator of secrets. Throws Error(failed) when that has none.
  [[nodiscard]] static JobKey make();
  /// From 64 hexadecimal digits, either case. Nothing: `text` is none.
  [[nodiscard]] static std::optional<JobKey> from_hex(std::string_view text) noexcept;

  /// From the bytes of secret().
  [[nodiscard]] static JobKey from_bytes(std::span<const std::byte, size> bytes) noexcept;

  ~JobKey();
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;

  /// 64 hexadecimal digits: the secret itself, for the standard input of a process of the machine and nowhere else.
  [[nodiscard]] std::string reveal_hex() const;
  /// The secret's bytes, for a computation.
  [[nodiscard]] std::span<const std::byte, size> secret() const noexcept { return bytes_; }

 private:
  JobKey() noexcept = default;
  std::array<std::byte, size> bytes_{};
};

/// Overwrites `bytes` so that the compiler cannot leave it out.
void wipe(std::span<std::byte> bytes) noexcept;

/// HMAC-SHA256 of the parts, one behind the other, by `key`. Throws Error(failed) when the cryptographic library fails.
[[nodiscard]] std::array<std::byte, 32> keyed_hash(const JobKey& key,
                                                   std::span<const std::span<const std::byte>> parts);

/// 32 bytes for one purpose, derived from the key (HKDF-SHA256, RFC 5869). Throws Error(failed).
[[nodiscard]] std::array<std::byte, 32> derive_secret(const JobKey& key, std::span<const std::byte> salt,
                                                      std::string_view purpose);

/// By which calls to a relay of the machine are proved: who knows it can join ends, and read nothing. Throws
/// Error(failed).
[[nodiscard]] JobKey relay_key(const JobKey& key, std::string_view machine);

/// Compares in a time that does not depend on the bytes.
[[nodiscard]] bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

/// Fills it with bytes that nobody can predict: the system's, because OpenSSL's own generator takes a millisecond to
/// begin. Throws Error(failed).
void fill_random(std::span<std::byte> bytes);

}  // namespace aplib::comm
