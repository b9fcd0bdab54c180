// SPDX-License-Identifier: MIT
// View: what one thread, or one store, knows: for each atomic location the oldest store that may still be read, and for
// each thread how much of it happened before. An acquire joins two views.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aplib::det {

inline constexpr std::size_t thread_count_max = 8;

struct View {
  std::vector<std::uint32_t> oldest;                    // by location; missing means 0, the initial value
  std::array<std::uint32_t, thread_count_max> clock{};  // by thread: happened-before

  [[nodiscard]] std::uint32_t oldest_at(std::size_t location) const {
    return location < oldest.size() ? oldest[location] : 0;
  }

  void raise(std::size_t location, std::uint32_t store) {
    if (location >= oldest.size()) oldest.resize(location + 1, 0);
    oldest[location] = std::max(oldest[location], store);
  }

  /// Coherence only: no happens-before. This is all that a seq_cst fence adds.
  void join_oldest(const View& other) {
    if (other.oldest.size() > oldest.size()) oldest.resize(other.oldest.size(), 0);
    for (std::size_t i = 0; i < other.oldest.size(); ++i) oldest[i] = std::max(oldest[i], other.oldest[i]);
  }

  void join(const View& other) {
    join_oldest(other);
    for (std::size_t i = 0; i < thread_count_max; ++i) clock[i] = std::max(clock[i], other.clock[i]);
  }
};

}  // namespace aplib::det
