// SPDX-License-Identifier: MIT
#include "comm/wire.hpp"

#include <fmt/format.h>

namespace aplib::comm {

std::string explain_refusal(std::span<const std::byte, frame_header_bytes> bytes) {
  wire_detail::Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != frame_magic) {
    return fmt::format(
        "no frame begins with {:#06x} ({:#06x} expected): not an APlib process, or the stream is damaged", layout.magic,
        frame_magic);
  }
  if (layout.version != frame_version) {
    return fmt::format("a frame of version {}, this process knows version {}: install the same APlib on all hosts",
                       layout.version, frame_version);
  }
  if (layout.flags > 1 || layout.reserved != 0) {
    return fmt::format("a frame with flags {:#04x} and reserved {:#x}, which are 0 or 1 and 0: the stream is damaged",
                       layout.flags, layout.reserved);
  }
  if (layout.body_bytes > Module::body_bytes_max) {
    return fmt::format("a frame with a body of {} bytes, at most {} are allowed: the stream is damaged",
                       layout.body_bytes, Module::body_bytes_max);
  }
  return "an end mark with a label or a body: the stream is damaged";
}

}  // namespace aplib::comm
