// SPDX-License-Identifier: MIT
// CellMap: says which process of a machine carries which cell. Any assignment is possible; nothing outside this class
// may assume that a process carries consecutive cells.
//
//   const auto map = CellMap::consecutive({{4, 0, 2}});   // process 0: cells 0-3, process 1: none, process 2: 4 and 5
//   map.process_of(4) == 2;  map.cells_of(0);  map.text(0) == "cells 0-3";
//
// Thread safety: as a container.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aplib/export.hpp"

namespace aplib {

class APLIB_API CellMap {
 public:
  static constexpr std::uint32_t processes_max = 0xffff;

  /// Process 0 carries all cells, and is the only one.
  explicit CellMap(std::uint32_t cells = 0);
  /// Process p carries counts[p] cells, and the processes' cells follow each other.
  static CellMap consecutive(std::span<const std::uint32_t> counts);
  /// Process process_of_cell[c] carries cell c.
  /// REQUIRES: 1 <= processes <= processes_max, and each entry below `processes`.
  static CellMap of(std::uint32_t processes, std::span<const std::uint32_t> process_of_cell);

  [[nodiscard]] std::uint32_t processes() const noexcept { return static_cast<std::uint32_t>(begin_.size()) - 1; }
  [[nodiscard]] std::uint32_t cells() const noexcept { return static_cast<std::uint32_t>(process_.size()); }
  /// REQUIRES: cell < cells().
  [[nodiscard]] std::uint32_t process_of(std::uint32_t cell) const noexcept { return process_[cell]; }
  /// False also for a cell that does not exist.
  [[nodiscard]] bool carries(std::uint32_t process, std::uint32_t cell) const noexcept {
    return cell < process_.size() && process_[cell] == process;
  }
  /// In ascending order. REQUIRES: process < processes().
  [[nodiscard]] std::span<const std::uint32_t> cells_of(std::uint32_t process) const noexcept {
    return std::span(by_process_).subspan(begin_[process], begin_[process + 1] - begin_[process]);
  }
  /// The place of a cell among those of its process: cells_of(process_of(cell))[local_index(cell)] == cell.
  /// REQUIRES: cell < cells().
  [[nodiscard]] std::uint32_t local_index(std::uint32_t cell) const noexcept;

  /// For messages: "cells 0, 3-5", "cell 3", "no cells". REQUIRES: process < processes().
  [[nodiscard]] std::string text(std::uint32_t process) const;

  /// The same processes with another number of cells, consecutive, in the proportions of this map.
  /// REQUIRES: cells() != 0.
  [[nodiscard]] CellMap shared_again(std::uint32_t cells) const;

  /// The map as numbers, for other processes.
  [[nodiscard]] std::vector<std::uint32_t> words() const;
  /// A map from numbers, which may be anybody's. Nothing: they are no map, or one of more than cell_count_max cells.
  static std::optional<CellMap> from_words(std::span<const std::uint32_t> words);

  friend bool operator==(const CellMap&, const CellMap&) = default;

 private:
  std::vector<std::uint16_t> process_;     // by cell
  std::vector<std::uint32_t> by_process_;  // all cells, those of process 0 first
  std::vector<std::uint32_t> begin_;       // by process, and the end: where its cells stand in by_process_
};

/// "0, 3-5", for ascending numbers.
[[nodiscard]] APLIB_API std::string ranges_text(std::span<const std::uint32_t> numbers);

}  // namespace aplib
