// SPDX-License-Identifier: MIT
// Extents: how large the arguments of a call are, by the sizes in its function's description and its integer scalars.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calls/interface.hpp"

namespace aplib::calls {

/// Smaller arrays travel in the stream.
inline constexpr std::uint64_t arena_array_min = std::uint64_t{16} << 10;
inline constexpr std::uint64_t array_bytes_max = std::uint64_t{1} << 46;
/// Arrays side by side in memory begin with cache lines.
inline constexpr std::size_t line_bytes = 64;
[[nodiscard]] constexpr std::uint64_t rounded_to_lines(std::uint64_t bytes) noexcept {
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

/// What travels of one dimension.
struct Range {
  std::uint64_t size = 0;
  std::uint64_t low = 0;
  std::uint64_t count = 0;
  std::uint64_t stride = 1;
};

/// How much there is of one argument.
struct Extent {
  static constexpr std::uint64_t in_stream = ~std::uint64_t{0};

  std::uint64_t elements = 1;
  std::uint64_t moved = 1;  ///< So many of them travel.
  std::uint64_t bytes = 0;  ///< Of all elements.
  std::uint64_t moved_bytes = 0;
  std::uint64_t offset = in_stream;  ///< In the arena.
  std::vector<Range> ranges{};       ///< Empty: all elements travel.
};

/// The extents of a call's arguments. Kept between calls, it allocates only when it must grow.
class Extents {
 public:
  /// `addresses` has the first element of each argument; only integer scalars are looked at. Throws
  /// Error(bad_argument) "FUNCTION: PARAMETER: cause: remedy".
  void measure(const Function& function, std::span<void* const> addresses);
  /// Gives all large arrays a place in an arena. Returns its size; 0: there are none.
  std::uint64_t place_in_arena(const Function& function);

  [[nodiscard]] const Extent& operator[](std::size_t parameter) const { return extents_[parameter]; }
  /// Of all arguments in memory.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void measure_array(const Function& function, std::size_t which);

  std::vector<Extent> extents_;
  std::vector<std::int64_t> values_;
  std::uint64_t bytes_ = 0;
};

/// Throws Error(bad_argument): "dmmul: IN double A[n][n]: why".
[[noreturn]] void refuse_argument(const Function& function, const Parameter& parameter, const std::string& why);

/// Calls run(offset in elements, count) for the stretches of elements that travel, in their order.
template <class Run>
void for_each_run(const Extent& extent, Run run) {
  if (extent.ranges.empty()) {
    run(std::uint64_t{0}, extent.elements);
    return;
  }
  if (extent.moved == 0) return;
  const std::vector<Range>& ranges = extent.ranges;
  const Range& last = ranges.back();
  std::array<std::uint64_t, dimensions_max> at{};  // how far each dimension is
  for (;;) {
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i + 1 < ranges.size(); ++i)
      offset = (offset + ranges[i].low + at[i] * ranges[i].stride) * ranges[i + 1].size;
    offset += last.low;
    if (last.stride == 1) {
      run(offset, last.count);
    } else {
      for (std::uint64_t i = 0; i < last.count; ++i) run(offset + i * last.stride, std::uint64_t{1});
    }
    std::size_t dimension = ranges.size() - 1;
    while (dimension > 0 && ++at[dimension - 1] == ranges[dimension - 1].count) at[--dimension] = 0;
    if (dimension == 0) return;
  }
}

}  // namespace aplib::calls
