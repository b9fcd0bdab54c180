// SPDX-License-Identifier: MIT
// FrameReader's promises for any bytes in any pieces, checked from outside against a parser that has all bytes at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace aplib::comm::test {

/// The check's receiver refuses larger bodies.
inline constexpr std::size_t accepted_bytes_max = 1024 * 1024;

/// What a check saw, which tells a test whether the check proves anything.
struct StreamSummary {
  std::uint64_t frames = 0;
  bool refused = false;
  bool ended_in_order = false;
};

/// Gives `stream` to a reader, in pieces and by inputs that the numbers of `draw` choose. Returns the first broken
/// promise, or "".
std::string broken_promise(std::span<const std::byte> stream, const std::function<std::uint32_t()>& draw,
                           StreamSummary* summary = nullptr);

}  // namespace aplib::comm::test
