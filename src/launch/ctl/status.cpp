// SPDX-License-Identifier: MIT
#include "launch/ctl/status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/cell_map.hpp"
#include "base/text.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::ctl {
namespace {

/// "1:02:03".
std::string time_text(std::uint64_t seconds) {
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string grid_text(Grid grid) {
  return grid.count() == 0 ? std::string("?") : fmt::format("{}x{}", grid.nx, grid.ny);
}

/// "3.2 MB".
std::string bytes_text(std::uint64_t bytes) {
  constexpr double step = 1000;
  auto value = static_cast<double>(bytes);
  if (value < step) return fmt::format("{} B", bytes);
  for (const char* unit : {"kB", "MB", "GB", "TB"}) {
    value /= step;
    if (value < step) return fmt::format("{:.1f} {}", value, unit);
  }
  return fmt::format("{:.1f} PB", value / step);
}

/// "0-3, 7", "none"; empty: not known yet.
std::string cells_text(const CellMap& cells, std::size_t process) {
  if (cells.cells() == 0 || process >= cells.processes()) return {};
  const auto carried = cells.cells_of(static_cast<std::uint32_t>(process));
  return carried.empty() ? std::string("none") : ranges_text(carried);
}

std::string traffic_text(std::uint64_t frames, std::uint64_t bytes) {
  return fmt::format("{} ({})", frames, bytes_text(bytes));
}

/// Which processes reach which others how: "0  1-3  shm". Of a pair that is described, what the first says.
std::string routes_text(const wire::MachineStatus& status) {
  std::vector<TableRow> rows{{"process", "with", "by"}};
  for (std::size_t p = 0; p < status.processes.size(); ++p) {
    for (const wire::Route& route : status.processes[p].node.routes) {
      const auto peer = text::parse_number(route.peers);
      if (!route.text.empty() && peer && *peer < p && !status.processes[*peer].node.routes.empty()) continue;
      rows.push_back({fmt::format("{}", p), route.peers, route.text.empty() ? route.module : route.text});
    }
  }
  return rows.size() == 1 ? std::string() : '\n' + table(rows);
}

}  // namespace

std::string job_list_text(const std::vector<std::pair<std::uint32_t, wire::MachineStatus>>& jobs) {
  std::vector<TableRow> rows{{"job", "state", "grid", "processes", "time", "program"}};
  for (const auto& [job, status] : jobs) {
    rows.push_back({fmt::format("{}", job), status.state, grid_text(status.grid),
                    fmt::format("{}", status.processes.size()), time_text(status.seconds), status.program});
  }
  return table(rows);
}

std::string job_status_text(std::uint32_t job, const wire::MachineStatus& status) {
  std::string text;
  const auto line = [&text](std::string_view name, std::string_view value) {
    if (!value.empty()) text += fmt::format("{:<9}{}\n", name, one_line(value));
  };
  line("job", fmt::format("{}", job));
  line("state", status.state);
  line("time", time_text(status.seconds));
  line("file", status.file);
  line("program", status.program);
  line("grid", status.grid.count() == 0 ? std::string("not known yet")
                                        : fmt::format("{}: {} cells", grid_text(status.grid), status.grid.count()));
  std::uint64_t strangers = status.strangers;
  for (const wire::ProcessStatus& process : status.processes) strangers += process.node.refused;
  if (strangers != 0) line("dropped", fmt::format("{} connections of strangers", strangers));
  // One process sends no frames. These columns are for several.
  const bool several = std::ranges::any_of(status.processes, [](const wire::ProcessStatus& process) {
    return !process.address.empty() || !process.node.routes.empty();
  });
  std::vector<TableRow> rows{{"process", "host", "computer", "pid", "state", "cells", "polls for"}};
  if (several) rows[0].insert(rows[0].end(), {"address", "frames sent", "received"});
  for (std::size_t p = 0; p < status.processes.size(); ++p) {
    const wire::ProcessStatus& process = status.processes[p];
    rows.push_back({fmt::format("{}", p), process.name, process.computer,
                    process.pid == 0 ? std::string() : fmt::format("{}", process.pid), process.state,
                    cells_text(status.cells, p), process.node.polls});
    if (!several) continue;
    rows.back().insert(rows.back().end(),
                       {process.address, traffic_text(process.node.frames_sent, process.node.bytes_sent),
                        traffic_text(process.node.frames_received, process.node.bytes_received)});
  }
  return text + '\n' + table(rows) + routes_text(status);
}

}  // namespace aplib::launch::ctl
