// SPDX-License-Identifier: MIT
// Chunk: a piece of the stream of a long link (lanes.hpp), as it goes by one of its lanes. Little-endian, 32 bytes, and
// then the bytes of the stream:
//
//   0  magic, 2 bytes      3  flags, 1      8  offset, 8          24  lanes, 2
//   2  version, 1          4  bytes, 4     16  acknowledged, 8    26  reserved, 6 bytes, 0
//
// flags: 0, or 1 where the stream ends behind this chunk. A chunk without bytes only acknowledges.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace aplib::comm::tcp {

struct Chunk {
  static constexpr std::size_t header_bytes = 32;
  static constexpr std::uint32_t bytes_max = 128 * 1024;

  std::uint64_t offset = 0;        ///< In the stream, of the first byte.
  std::uint32_t bytes = 0;         ///< Up to bytes_max.
  bool ends = false;               ///< Behind it the stream ends.
  std::uint64_t acknowledged = 0;  ///< So much of the other direction's stream was taken.
  std::uint16_t lanes = 0;         ///< So many lanes the sender would use.
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

namespace chunk_detail {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

struct Layout {
  std::uint16_t magic;
  std::uint8_t version;
  std::uint8_t flags;
  std::uint32_t bytes;
  std::uint64_t offset;
  std::uint64_t acknowledged;
  std::uint16_t lanes;
  std::uint16_t reserved;
  std::uint32_t reserved_too;
};
static_assert(sizeof(Layout) == Chunk::header_bytes);

inline constexpr std::uint16_t magic = 0xa91c;
inline constexpr std::uint8_t version = 1;

}  // namespace chunk_detail

inline void encode_chunk(const Chunk& chunk, std::span<std::byte, Chunk::header_bytes> into) noexcept {
  const chunk_detail::Layout layout{.magic = chunk_detail::magic,
                                    .version = chunk_detail::version,
                                    .flags = static_cast<std::uint8_t>(chunk.ends ? 1 : 0),
                                    .bytes = chunk.bytes,
                                    .offset = chunk.offset,
                                    .acknowledged = chunk.acknowledged,
                                    .lanes = chunk.lanes,
                                    .reserved = 0,
                                    .reserved_too = 0};
  std::memcpy(into.data(), &layout, sizeof layout);
}

/// Nothing: these bytes are none.
[[nodiscard]] inline std::optional<Chunk> decode_chunk(std::span<const std::byte, Chunk::header_bytes> bytes) noexcept {
  chunk_detail::Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != chunk_detail::magic || layout.version != chunk_detail::version || layout.flags > 1 ||
      layout.bytes > Chunk::bytes_max || layout.reserved != 0 || layout.reserved_too != 0)
    return std::nullopt;
  const Chunk chunk{layout.offset, layout.bytes, layout.flags == 1, layout.acknowledged, layout.lanes};
  if (chunk.bytes == 0 && (chunk.ends || chunk.offset != 0)) return std::nullopt;
  if (chunk.offset + chunk.bytes < chunk.offset) return std::nullopt;
  return chunk;
}

}  // namespace aplib::comm::tcp
