// SPDX-License-Identifier: MIT
#include "launch/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cell_map.hpp"
#include "launch/cluster/document.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch {

namespace {

std::string cells_text(const std::vector<std::uint32_t>& cells) {
  return fmt::format("cell{} {}", cells.size() == 1 ? "" : "s", ranges_text(cells));
}

/// "12 KiB", "1.5 MiB".
std::string size_text(std::uint64_t bytes) {
  const double kibibytes = static_cast<double>(bytes) / 1024;
  return kibibytes < 1024 ? fmt::format("{:.0f} KiB", kibibytes) : fmt::format("{:.1f} MiB", kibibytes / 1024);
}

}  // namespace

std::string end_summary(const std::vector<int>& cell_status, int host_status) {
  std::map<int, std::vector<std::uint32_t>> by_status;
  for (std::uint32_t cell = 0; cell < cell_status.size(); ++cell) by_status[cell_status[cell]].push_back(cell);
  std::vector<std::pair<int, std::vector<std::uint32_t>>> groups(by_status.begin(), by_status.end());
  std::ranges::stable_sort(groups, std::greater{}, [](const auto& group) { return group.second.size(); });
  std::string text;
  if (host_status != 0) {
    text = fmt::format("host program: status {}", host_status);
    if (groups.size() == 1 && groups.front().first == 0) return text;
  }
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

std::string_view protection_text(std::string_view secure) {
  if (secure == "tls") return "tls: encrypted, and both ends prove that they know the job's key";
  if (secure == "off") return "off: neither encrypted nor checked";
  return "auth: both ends of a connection prove that they know the job's key";
}

/// "0-3, 7 (5)".
std::string planned_cells_text(std::span<const std::uint32_t> cells) {
  if (cells.empty()) return "none";
  return cells.size() == 1 ? ranges_text(cells) : fmt::format("{} ({})", ranges_text(cells), cells.size());
}

/// A word of a command line as one would type it.
std::string word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of(" \t\n\"'\\$`*?[]{}();&|<>#!~") == text.npos;
  return plain ? text : cluster::in_quotes(text);
}

/// The words of a command line, as one would type them.
std::string words_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& each : words) text += (text.empty() ? "" : " ") + word(each);
  return text;
}

std::string hosts_text(const ClusterPlan& plan) {
  double speeds = 0;
  for (const PlannedHost& host : plan.hosts) speeds += host.speed;
  std::vector<TableRow> rows{
      {"process", "host", "launch", "cells", "threads", speeds > 0 ? "speed" : "", "address", "because"}};
  for (std::size_t p = 0; p < plan.hosts.size(); ++p) {
    const PlannedHost& host = plan.hosts[p];
    rows.push_back({fmt::format("{}", p), host.name, std::string(cluster::launch_text(host.launch)),
                    planned_cells_text(plan.cells.cells_of(p)), host.threads > 0 ? fmt::format("{}", host.threads) : "",
                    host.speed > 0 ? fmt::format("{:.1f} %", 100 * host.speed / speeds) : "", host.address,
                    host.address_why});
  }
  return table(rows);
}

/// "tcp"; "the best of shm, tcp for each pair".
std::string modules_text(const ClusterPlan& plan) {
  std::vector<std::string> all;
  for (const PlannedHost& host : plan.hosts) {
    for (auto place = all.begin(); const std::string& module : host.modules) {
      const auto found = std::ranges::find(all, module);
      place = 1 + (found != all.end() ? found : all.insert(place, module));
    }
  }
  if (all.size() == 1) return all.front();
  return fmt::format("the best of {} for each pair", fmt::join(all, ", "));
}

/// Modules that some hosts cannot use, and those hosts.
std::vector<std::pair<std::string, std::vector<std::string>>> left_out_of(const ClusterPlan& plan) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const PlannedHost& host : plan.hosts) {
    for (const std::string& left : host.left_out) {
      auto found = std::ranges::find_if(all, [&](const auto& each) { return each.first == left; });
      if (found == all.end()) found = all.insert(found, {left, {}});
      found->second.push_back(host.name);
    }
  }
  return all;
}

}  // namespace

std::string other_programs_text(const RunText& run, std::uint32_t cells) {
  std::string text;
  for (std::size_t i = 1; i < run.programs.size(); ++i) {
    const wire::ProgramText& program = run.programs[i];
    std::vector<std::uint32_t> its(i + 1 < run.programs.size() ? run.programs[i + 1].first_cell : cells);
    its.resize(its.size() - program.first_cell);
    std::iota(its.begin(), its.end(), program.first_cell);
    std::vector<std::string> words = program.arguments;
    words.insert(words.begin(), program.name);
    text += fmt::format("program    {}, on {}\n", words_text(words), cells_text(its));
  }
  return text;
}

std::string cluster_plan_text(const ClusterPlan& plan) {
  std::string text;
  const auto line = [&text](std::string_view name, std::string_view value) {
    if (!value.empty()) text += fmt::format("{:<13}{}\n", name, value);
  };
  line("file", plan.file);
  line("host program", plan.host_program);
  line("program", plan.program);
  line("build-id", plan.build_id.empty() ? "none" : plan.build_id);
  line("arguments", words_text(plan.args));
  const bool balanced = plan.efficiency < 1;
  line("grid",
       fmt::format(
           "{}x{}{}: {} cell{} on {} host{}{}", plan.grid.nx, plan.grid.ny, plan.grid_auto ? " (auto)" : "",
           plan.grid.count(), plan.grid.count() == 1 ? "" : "s", plan.hosts.size(), plan.hosts.size() == 1 ? "" : "s",
           balanced ? fmt::format("; cells of equal work use {:.1f} % of the sum of the speeds", 100 * plan.efficiency)
                    : ""));
  line("messages", fmt::format("{}, {}", modules_text(plan),
                               plan.ports.empty() ? "ports chosen by the system" : "ports " + plan.ports));
  for (const auto& [left, hosts] : left_out_of(plan)) {
    const bool everywhere = hosts.size() == plan.hosts.size();
    line("without", everywhere ? left : fmt::format("{} ({})", left, fmt::join(hosts, ", ")));
  }
  line("security", protection_text(plan.secure));
  return text + '\n' + hosts_text(plan);
}

namespace {

std::string secure_text(const comm::ModuleKind& kind) {
  std::vector<std::string_view> kept;
  for (const comm::Secure secure : {comm::Secure::off, comm::Secure::auth, comm::Secure::tls})
    if (kind.keeps(secure)) kept.push_back(to_string(secure));
  return fmt::format("{}", fmt::join(kept, ", "));
}

TableRow row(const comm::FoundModule& each, bool usable) {
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
  std::vector<TableRow> rows{{"module", "version", "reaches", "remote memory", "secure", "state", "file"}};
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
  return table(rows) + notes;
}

}  // namespace aplib::launch
