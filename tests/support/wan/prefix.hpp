// SPDX-License-Identifier: MIT
// Prefixes of IP addresses, and where an IP packet goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace aplib::wan {

/// Addresses of version 4 or 6 that begin with the same bits: "10.91.0.1", "10.91.1.0/24", "fd91::1".
class Prefix {
 public:
  /// Nothing if `text` is none. An address alone is all of its bits.
  [[nodiscard]] static std::optional<Prefix> parse(const std::string& text);

  /// `address`: 4 or 16 bytes.
  [[nodiscard]] bool holds(std::span<const std::byte> address) const noexcept;
  [[nodiscard]] bool overlaps(const Prefix& other) const noexcept;

 private:
  [[nodiscard]] std::span<const std::byte> address() const noexcept { return std::span(bytes_).first(size_); }

  std::array<std::byte, 16> bytes_{};
  std::size_t size_ = 4;
  unsigned bits_ = 32;
};

/// The destination of an IP packet, 4 or 16 of its bytes; empty if it is none.
[[nodiscard]] std::span<const std::byte> destination(std::span<const std::byte> packet) noexcept;

/// Whether that is an address of many, as IPv6 sends to by itself.
[[nodiscard]] bool is_multicast(std::span<const std::byte> address) noexcept;

}  // namespace aplib::wan
