// SPDX-License-Identifier: MIT
#include "launch/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/cell_map.hpp"

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

std::string ranges(const std::vector<std::uint32_t>& numbers) {
  std::string text = ranges_text(numbers);
  std::erase(text, ' ');
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

namespace {

constexpr std::size_t columns = 7;
using Row = std::array<std::string, columns>;

std::string secure_text(const comm::ModuleKind& kind) {
  std::vector<std::string_view> kept;
  for (const comm::Secure secure : {comm::Secure::off, comm::Secure::auth, comm::Secure::tls})
    if (kind.keeps(secure)) kept.push_back(to_string(secure));
  return fmt::format("{}", fmt::join(kept, ", "));
}

Row row(const comm::FoundModule& each, bool usable) {
  const comm::ModuleKind& kind = *each.kind;
  return {kind.name(),
          kind.version(),
          kind.one_host() ? "this host" : "any host",
          kind.has_remote_memory() ? "yes" : "no",
          secure_text(kind),
          usable ? "usable" : "not here",
          each.file};
}

}  // namespace

std::string module_table(std::span<const comm::FoundModule> found, const comm::PortSettings& settings) {
  std::vector<Row> rows{{"module", "version", "reaches", "remote memory", "secure", "state", "file"}};
  std::string notes;  // Long lines, behind the table.
  for (const comm::FoundModule& each : found) {
    if (each.kind) {
      const std::optional<std::string> why = each.kind->unusable(settings);
      rows.push_back(row(each, !why));
      notes += fmt::format("{}: {}{}\n", each.kind->name(), each.kind->description(),
                           why ? "; it cannot be used here: " + *why : std::string{});
    } else {
      notes += fmt::format("refused: {}: {}\n", each.file, each.refusal);
    }
  }
  std::array<std::size_t, columns> widths{};
  for (const Row& each : rows)
    for (std::size_t i = 0; i + 1 < columns; ++i) widths[i] = std::max(widths[i], each[i].size());
  std::string text;
  for (const Row& each : rows) {
    for (std::size_t i = 0; i + 1 < columns; ++i) text += fmt::format("{:<{}}  ", each[i], widths[i]);
    text += each[columns - 1] + '\n';
  }
  return text + notes;
}

}  // namespace aplib::launch
