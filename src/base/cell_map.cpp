// SPDX-License-Identifier: MIT
#include "base/cell_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "aplib/ids.hpp"

namespace aplib {

CellMap::CellMap(std::uint32_t cells) : process_(cells), by_process_(cells), begin_{0, cells} {
  std::iota(by_process_.begin(), by_process_.end(), 0U);
}

CellMap CellMap::consecutive(std::span<const std::uint32_t> counts) {
  std::vector<std::uint32_t> processes;
  for (std::uint32_t p = 0; p < counts.size(); ++p) processes.insert(processes.end(), counts[p], p);
  return of(static_cast<std::uint32_t>(counts.size()), processes);
}

CellMap CellMap::of(std::uint32_t processes, std::span<const std::uint32_t> process_of_cell) {
  CellMap map;
  map.begin_.assign(processes + 1, 0);
  for (const std::uint32_t process : process_of_cell) {
    map.process_.push_back(static_cast<std::uint16_t>(process));
    ++map.begin_[process + 1];
  }
  std::partial_sum(map.begin_.begin(), map.begin_.end(), map.begin_.begin());
  map.by_process_.resize(process_of_cell.size());
  std::vector<std::uint32_t> next = map.begin_;
  for (std::uint32_t cell = 0; cell < process_of_cell.size(); ++cell)
    map.by_process_[next[process_of_cell[cell]]++] = cell;
  return map;
}

std::uint32_t CellMap::local_index(std::uint32_t cell) const noexcept {
  const std::span<const std::uint32_t> cells = cells_of(process_of(cell));
  return static_cast<std::uint32_t>(std::ranges::lower_bound(cells, cell) - cells.begin());
}

std::string CellMap::text(std::uint32_t process) const {
  const std::span<const std::uint32_t> cells = cells_of(process);
  if (cells.empty()) return "no cells";
  return fmt::format("cell{} {}", cells.size() == 1 ? "" : "s", ranges_text(cells));
}

CellMap CellMap::shared_again(std::uint32_t cells) const {
  const std::uint64_t was = this->cells();
  // Bounds are rounded, not numbers of cells, so that the numbers add up.
  const auto bound = [&](std::uint32_t process) {
    return static_cast<std::uint32_t>((begin_[process] * std::uint64_t{cells} + was / 2) / was);
  };
  std::vector<std::uint32_t> counts;
  for (std::uint32_t p = 0; p < processes(); ++p) counts.push_back(bound(p + 1) - bound(p));
  return consecutive(counts);
}

// The words are the number of processes, then runs of cells: process, number of cells.
std::vector<std::uint32_t> CellMap::words() const {
  std::vector<std::uint32_t> words{processes()};
  for (std::uint32_t cell = 0; cell < cells(); ++cell) {
    if (cell == 0 || process_[cell] != process_[cell - 1]) words.insert(words.end(), {process_[cell], 0});
    ++words.back();
  }
  return words;
}

std::optional<CellMap> CellMap::from_words(std::span<const std::uint32_t> words) {
  if (words.size() % 2 == 0 || words[0] == 0 || words[0] > processes_max) return std::nullopt;
  std::vector<std::uint32_t> processes;
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const std::uint32_t process = words[i];
    const std::uint32_t count = words[i + 1];
    if (process >= words[0] || count == 0 || count > cell_count_max - processes.size()) return std::nullopt;
    processes.insert(processes.end(), count, process);
  }
  return of(words[0], processes);
}

std::string ranges_text(std::span<const std::uint32_t> numbers) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += first == last ? fmt::format("{}", numbers[first]) : fmt::format("{}-{}", numbers[first], numbers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace aplib
