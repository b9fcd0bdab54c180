// SPDX-License-Identifier: MIT
// The frame on the wire, little-endian: 40 bytes of header, then the body.
//
//   0  magic, 2 bytes      4  reserved, 4 bytes, 0      16  key       28  task    36  extra
//   2  version, 1          8  body bytes, 8             24  cell      32  kind    40  body
//   3  flags, 1, 0
//
// What does not look so is refused: the stream has lost its place, or the peer is no peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "comm/label.hpp"

namespace aplib::comm {

inline constexpr std::size_t frame_header_bytes = 40;
inline constexpr std::uint8_t frame_version = 1;

struct FrameHeader {
  Label label;
  std::uint64_t body_bytes = 0;
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

/// Writes the header's bytes.
void encode(const FrameHeader& header, std::span<std::byte, frame_header_bytes> into) noexcept;

/// Reads a header; nothing: these bytes are none (magic, version, flags, reserved, or a body above Module::body_bytes_max).
[[nodiscard]] std::optional<FrameHeader> decode(std::span<const std::byte, frame_header_bytes> bytes) noexcept;

}  // namespace aplib::comm
