// SPDX-License-Identifier: MIT
// Random bytes that tests take the contents of messages from: the same ones in every process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace aplib::testing_support {

/// So many bytes; the last ones are 0 if they make no whole word.
inline std::vector<std::byte> random_bytes(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  std::mt19937_64 random(4711);
  for (std::size_t i = 0; i + 8 <= made.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(&made[i], &word, 8);
  }
  return made;
}

}  // namespace aplib::testing_support
