// SPDX-License-Identifier: MIT
#include "wan/prefix.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace aplib::wan {
namespace {

bool begin_alike(std::span<const std::byte> a, std::span<const std::byte> b, unsigned bits) noexcept {
  const std::size_t whole = bits / 8;
  if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(whole), b.begin())) return false;
  const unsigned rest = bits % 8;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == std::byte{0};
}

}  // namespace

std::optional<Prefix> Prefix::parse(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::string address = text.substr(0, slash);
  Prefix prefix;
  const bool is_6 = address.find(':') != std::string::npos;
  if (inet_pton(is_6 ? AF_INET6 : AF_INET, address.c_str(), prefix.bytes_.data()) != 1) return std::nullopt;
  prefix.size_ = is_6 ? 16 : 4;
  prefix.bits_ = static_cast<unsigned>(prefix.size_) * 8;
  if (slash == std::string::npos) return prefix;
  unsigned bits = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + slash + 1, end, bits);
  if (error != std::errc() || stop != end || bits > prefix.bits_) return std::nullopt;
  prefix.bits_ = bits;
  return prefix;
}

bool Prefix::holds(std::span<const std::byte> address) const noexcept {
  return address.size() == size_ && begin_alike(this->address(), address, bits_);
}

bool Prefix::overlaps(const Prefix& other) const noexcept {
  return other.size_ == size_ && begin_alike(address(), other.address(), std::min(bits_, other.bits_));
}

std::span<const std::byte> destination(std::span<const std::byte> packet) noexcept {
  // Where it stands in a header, and that header's size.
  if (packet.size() >= 20 && (packet[0] >> 4) == std::byte{4}) return packet.subspan(16, 4);
  if (packet.size() >= 40 && (packet[0] >> 4) == std::byte{6}) return packet.subspan(24, 16);
  return {};
}

bool is_multicast(std::span<const std::byte> address) noexcept {
  if (address.empty()) return false;
  return address.size() == 4 ? (address[0] >> 4) == std::byte{0xe} : address[0] == std::byte{0xff};
}

}  // namespace aplib::wan
