// SPDX-License-Identifier: MIT
// The naive model of a datatype: its type map, the list of basic types and displacements of the standard, with bounds.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "mpi/datatype.hpp"

namespace aplib::mpi::testing_support {

using TypeMap = std::vector<std::pair<BasicType, Count>>;

/// The type map that a datatype's layout and signature make.
inline TypeMap map_of(const Datatype& type) {
  TypeMap map;
  Count first = 0;
  type.signature().for_each([&](BasicType basic, Count count) {
    for (Count i = 0; i < count; ++i, first += basic_info(basic).size) {
      const Cursor cursor(*type.elements(nullptr, 1), first);
      const Run run = cursor.run();
      map.emplace_back(basic, reinterpret_cast<Count>(run.address) + (run.list != nullptr ? *run.list : 0));
    }
  });
  return map;
}

struct Model {
  TypeMap map{};
  std::optional<std::pair<Count, Count>> bounds{};  ///< Those of all parts together,
  bool is_marked = false;                           ///< of those alone that are marked, if there are any.

  [[nodiscard]] Count size() const {
    Count bytes = 0;
    for (const auto& [basic, at] : map) bytes += basic_info(basic).size;
    return bytes;
  }
  [[nodiscard]] Count true_lb() const {
    Count lowest = map.empty() ? 0 : map[0].second;
    for (const auto& [basic, at] : map) lowest = std::min(lowest, at);
    return lowest;
  }
  [[nodiscard]] Count true_ub() const {
    Count highest = map.empty() ? 0 : map[0].second;
    for (const auto& [basic, at] : map) highest = std::max(highest, at + basic_info(basic).size);
    return highest;
  }
  [[nodiscard]] Count lb() const { return bounds ? bounds->first : 0; }
  [[nodiscard]] Count ub() const { return bounds ? bounds->second : 0; }
  [[nodiscard]] Count extent() const { return ub() - lb(); }

  void mark(Count lower, Count upper) {
    bounds = {lower, upper};
    is_marked = true;
  }
  void add_basic(BasicType basic, Count at) {
    map.emplace_back(basic, at);
    bound(at, at + basic_info(basic).size);
  }
  /// Adds `old`, moved.
  void add(const Model& old, Count displacement) {
    for (const auto& [basic, at] : old.map) map.emplace_back(basic, at + displacement);
    if (!old.bounds || (is_marked && !old.is_marked)) return;
    if (old.is_marked && !std::exchange(is_marked, true)) bounds.reset();
    bound(old.lb() + displacement, old.ub() + displacement);
  }
  /// It is a structure: what follows it in an array is aligned.
  void pad() {
    if (!bounds || is_marked) return;
    Count alignment = 1;
    for (const auto& [basic, at] : map) alignment = std::max<Count>(alignment, basic_info(basic).alignment);
    while (extent() % alignment != 0) ++bounds->second;
  }
  void bound(Count lower, Count upper) {
    bounds =
        bounds ? std::pair(std::min(bounds->first, lower), std::max(bounds->second, upper)) : std::pair(lower, upper);
  }
  void add_block(const Model& old, Count displacement, Count blocklength) {
    const Count distance = old.extent();
    for (Count i = 0; i < blocklength; ++i) add(old, displacement + i * distance);
  }

  /// Where the bytes of `count` elements lie, in their order.
  [[nodiscard]] std::vector<Count> bytes(Count count) const {
    const Count distance = extent();
    std::vector<Count> places;
    for (Count i = 0; i < count; ++i) {
      for (const auto& [basic, at] : map) {
        for (Count j = 0; j < basic_info(basic).size; ++j) places.push_back(at + i * distance + j);
      }
    }
    return places;
  }
};

}  // namespace aplib::mpi::testing_support
