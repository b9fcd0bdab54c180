// SPDX-License-Identifier: MIT
#include "launch/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace aplib::launch {
namespace {

std::string cells_text(const std::vector<std::uint32_t>& cells) {
  return fmt::format("cell{} {}", cells.size() == 1 ? "" : "s", ranges(cells));
}

/// "12 KiB", "1.5 MiB".
std::string size_text(std::uint64_t bytes) {
  const double kibibytes = static_cast<double>(bytes) / 1024;
  return kibibytes < 1024 ? fmt::format("{:.0f} KiB", kibibytes) : fmt::format("{:.1f} MiB", kibibytes / 1024);
}

}  // namespace

std::string ranges(const std::vector<std::uint32_t>& cells) {
  std::string text;
  for (std::size_t first = 0; first < cells.size();) {
    std::size_t last = first;
    while (last + 1 < cells.size() && cells[last + 1] == cells[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", cells[first]) : fmt::format("{}-{}", cells[first], cells[last]);
    first = last + 1;
  }
  return text;
}

std::string end_summary(const std::vector<int>& cell_status) {
  std::map<int, std::vector<std::uint32_t>> by_status;
  for (std::uint32_t cell = 0; cell < cell_status.size(); ++cell) by_status[cell_status[cell]].push_back(cell);
  std::vector<std::pair<int, std::vector<std::uint32_t>>> groups(by_status.begin(), by_status.end());
  std::ranges::stable_sort(groups, std::greater{}, [](const auto& group) { return group.second.size(); });
  std::string text;
  for (const auto& [status, cells] : groups) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{}: status {}", cells_text(cells), status);
  }
  return text;
}

std::string plan_text(const ProgramSummary& summary, const Options& options) {
  const Grid grid = options.cells;
  std::string text = fmt::format("program    {}\n", summary.path);
  text += fmt::format("build-id   {}\n", summary.build_id.empty() ? "none" : summary.build_id);
  text += fmt::format("entry      {}{}\n", summary.entry, summary.is_host ? ", as host program" : "");
  text += fmt::format("cells      {} ({}x{})\n", grid.count(), grid.nx, grid.ny);
  for (std::size_t p = 0; p < summary.carriers.size(); ++p) {
    const ProgramSummary::Carrier& carrier = summary.carriers[p];
    std::vector<std::uint32_t> cells;
    for (std::uint32_t cell = carrier.first_cell; cell <= carrier.last_cell; ++cell) cells.push_back(cell);
    text += fmt::format("thread {:<3} {}, {}\n", p, cells_text(cells),
                        carrier.core >= 0 ? fmt::format("on core {}", carrier.core) : "on any core");
  }
  for (const ProgramSummary::File& file : summary.libraries)
    text += fmt::format("library    {} ({})\n", file.path, file.separate ? "a copy for each cell" : "shared");
  text += fmt::format("memory     {} once; for each cell at most {}, what it allocates, and its stacks (up to {})\n",
                      size_text(summary.shared_bytes), size_text(summary.private_bytes),
                      size_text(options.program_stack_bytes));
  return text;
}

}  // namespace aplib::launch
