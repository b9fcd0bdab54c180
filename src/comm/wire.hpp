// SPDX-License-Identifier: MIT
// The frame on the wire, little-endian: 40 bytes of header, then the body.
//
//   0  magic, 2 bytes      4  reserved, 4 bytes, 0      16  key       28  task    36  extra
//   2  version, 1          8  body bytes, 8             24  cell      32  kind    40  body
//   3  flags, 1
//
// flags: 0, or 1 in the last header of a stream that ends in order: a mark without body and with a label of zeros.
// A stream that ends without it was cut. What does not look so is refused: the stream has lost its place, or the
// peer is no peer.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "comm/label.hpp"
#include "comm/module.hpp"

namespace aplib::comm {

inline constexpr std::size_t frame_header_bytes = 40;
inline constexpr std::uint8_t frame_version = 1;
inline constexpr std::uint16_t frame_magic = 0xa91b;

struct FrameHeader {
  Label label;
  std::uint64_t body_bytes = 0;
  bool end = false;  ///< The mark of an ordered end; then the rest is 0.
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

namespace wire_detail {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

struct Layout {
  std::uint16_t magic;
  std::uint8_t version;
  std::uint8_t flags;
  std::uint32_t reserved;
  std::uint64_t body_bytes;
  std::uint64_t key;
  std::uint32_t cell;
  std::uint32_t task;
  std::uint32_t kind;
  std::uint32_t extra;
};
static_assert(sizeof(Layout) == frame_header_bytes);

inline constexpr std::uint64_t front = frame_magic | std::uint64_t{frame_version} << 16U;
inline constexpr std::uint64_t end_flag = std::uint64_t{1} << 24U;

}  // namespace wire_detail

/// Writes the header's bytes.
inline void encode(const FrameHeader& header, std::span<std::byte, frame_header_bytes> into) noexcept {
  const Label& label = header.label;
  const wire_detail::Layout layout{.magic = frame_magic,
                                   .version = frame_version,
                                   .flags = static_cast<std::uint8_t>(header.end ? 1 : 0),
                                   .reserved = 0,
                                   .body_bytes = header.body_bytes,
                                   .key = label.key,
                                   .cell = label.cell,
                                   .task = label.task,
                                   .kind = label.kind,
                                   .extra = label.extra};
  std::memcpy(into.data(), &layout, sizeof layout);
}

/// Reads a header; nothing: these bytes are none (explain_refusal() says why). Inline: it is on the path of every
/// frame, some 2 ns.
[[nodiscard]] inline std::optional<FrameHeader> decode(std::span<const std::byte, frame_header_bytes> bytes) noexcept {
  wire_detail::Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  // Magic, version, flags and reserved in one comparison.
  std::uint64_t front = 0;
  std::memcpy(&front, bytes.data(), sizeof front);
  const bool end = (front & wire_detail::end_flag) != 0;
  if ((front & ~wire_detail::end_flag) != wire_detail::front || layout.body_bytes > Module::body_bytes_max)
    return std::nullopt;
  const FrameHeader header{{layout.key, layout.cell, layout.task, layout.kind, layout.extra}, layout.body_bytes, end};
  if (end && (header.body_bytes != 0 || header.label != Label{})) return std::nullopt;
  return header;
}

/// Why decode() refuses these bytes, for people: "no frame begins with 0x4745 (0xa91b expected): not an APlib
/// process, or the stream is damaged".
[[nodiscard]] std::string explain_refusal(std::span<const std::byte, frame_header_bytes> bytes);

}  // namespace aplib::comm
