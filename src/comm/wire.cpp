// SPDX-License-Identifier: MIT
#include "comm/wire.hpp"

#include <bit>
#include <cstring>

#include "comm/module.hpp"

namespace aplib::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

constexpr std::uint16_t magic = 0xa91b;

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

}  // namespace

void encode(const FrameHeader& header, std::span<std::byte, frame_header_bytes> into) noexcept {
  const Label& label = header.label;
  const Layout layout{magic,     frame_version, 0,          0,          header.body_bytes,
                      label.key, label.cell,    label.task, label.kind, label.extra};
  std::memcpy(into.data(), &layout, sizeof layout);
}

std::optional<FrameHeader> decode(std::span<const std::byte, frame_header_bytes> bytes) noexcept {
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != magic || layout.version != frame_version || layout.flags != 0 || layout.reserved != 0 ||
      layout.body_bytes > Module::body_bytes_max)
    return std::nullopt;
  return FrameHeader{{layout.key, layout.cell, layout.task, layout.kind, layout.extra}, layout.body_bytes};
}

}  // namespace aplib::comm
