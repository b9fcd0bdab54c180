// SPDX-License-Identifier: MIT
// The random numbers of a loop net, from eight bytes of state per pair, for thousands of pairs.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace aplib::comm::loop {

/// splitmix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
inline std::uint64_t loop_draw(std::uint64_t& state) noexcept {
  state += 0x9e37'79b9'7f4a'7c15ULL;
  std::uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11ebULL;
  return z ^ (z >> 31U);
}

/// How many bytes move at a time: 1 to `most`, small numbers as often as large ones. 0: no limit.
inline std::size_t loop_piece(std::uint64_t& state, std::size_t most) noexcept {
  if (most == 0) return std::numeric_limits<std::size_t>::max();
  const auto shift = static_cast<unsigned>(loop_draw(state) % static_cast<unsigned>(std::bit_width(most)));
  return 1 + loop_draw(state) % std::max<std::size_t>(most >> shift, 1);
}

}  // namespace aplib::comm::loop
