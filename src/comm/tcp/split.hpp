// SPDX-License-Identifier: MIT
// How a large body is split over the connections of a pair. Both sides know it from the number of bytes and of connections, so that the parts need no headers: on every connection
// they come in the order of the frames.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/frame_reader.hpp"

namespace aplib::comm {

struct Split {
  /// Smaller bodies go by the first connection alone.
  static constexpr std::size_t from_bytes = 256 * 1024;

  struct Part {
    std::size_t offset;
    std::size_t bytes;
  };

  /// The part of connection `stream` of `streams`. That of the first is never smaller than the reader's buffer: what the reader finds behind the header there belongs to the body.
  [[nodiscard]] static constexpr Part part(std::size_t body_bytes, std::size_t streams, std::size_t stream) noexcept {
    if (streams <= 1 || body_bytes < from_bytes) return {0, stream == 0 ? body_bytes : 0};
    const std::size_t first = std::max(FrameReader::buffer_bytes, body_bytes / streams);
    if (stream == 0) return {0, first};
    const std::size_t rest = body_bytes - first;
    const std::size_t begin = rest * (stream - 1) / (streams - 1);
    return {first + begin, rest * stream / (streams - 1) - begin};
  }
};

}  // namespace aplib::comm
