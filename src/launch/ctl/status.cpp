// SPDX-License-Identifier: MIT
#include "launch/ctl/status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/text.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::ctl {
namespace {

using Row = std::vector<std::string>;

std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], printable(row[c]).size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) line += fmt::format("{:{}}  ", printable(row[c]), widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

/// "1:02:03".
std::string time_text(std::uint64_t seconds) {
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string grid_text(Grid grid) {
  return grid.count() == 0 ? std::string("?") : fmt::format("{}x{}", grid.nx, grid.ny);
}

std::string cells_text(const JobProcess& process) {
  if (process.cells == 0) return "none";
  if (process.cells == 1) return fmt::format("{}", process.first_cell);
  return fmt::format("{}-{}", process.first_cell, process.first_cell + process.cells - 1);
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

std::string traffic_text(std::uint64_t frames, std::uint64_t bytes) {
  return fmt::format("{} ({})", frames, bytes_text(bytes));
}

/// Which processes reach which others how: "0  1-3  shm". Of a pair that is described, what the first says.
std::string ways_text(const JobStatus& status) {
  std::vector<Row> rows{{"process", "with", "by"}};
  for (std::size_t p = 0; p < status.processes.size(); ++p) {
    for (const JobWay& way : status.processes[p].ways) {
      const auto peer = text::parse_number(way.peers);
      if (!way.text.empty() && peer && *peer < p && !status.processes[*peer].ways.empty()) continue;
      rows.push_back({fmt::format("{}", p), way.peers, way.text.empty() ? way.module : way.text});
    }
  }
  return rows.size() == 1 ? std::string() : '\n' + table(rows);
}

}  // namespace

std::string job_list_text(const std::vector<std::pair<std::uint32_t, JobStatus>>& jobs) {
  std::vector<Row> rows{{"job", "state", "grid", "processes", "time", "program"}};
  for (const auto& [job, status] : jobs) {
    rows.push_back({fmt::format("{}", job), status.state, grid_text(status.grid),
                    fmt::format("{}", status.processes.size()), time_text(status.seconds), status.program});
  }
  return table(rows);
}

std::string job_status_text(std::uint32_t job, const JobStatus& status) {
  std::string text;
  const auto line = [&text](std::string_view name, std::string_view value) {
    if (!value.empty()) text += fmt::format("{:<9}{}\n", name, printable(value));
  };
  line("job", fmt::format("{}", job));
  line("state", status.state);
  line("time", time_text(status.seconds));
  line("file", status.file);
  line("program", status.program);
  line("grid", status.grid.count() == 0 ? std::string("not known yet")
                                        : fmt::format("{}: {} cells", grid_text(status.grid), status.grid.count()));
  // In one process no frames are sent: those columns are for several.
  const bool several = std::ranges::any_of(
      status.processes, [](const JobProcess& process) { return !process.address.empty() || !process.ways.empty(); });
  std::vector<Row> rows{{"process", "host", "computer", "pid", "state", "cells"}};
  if (several) rows[0].insert(rows[0].end(), {"address", "frames sent", "received"});
  for (std::size_t p = 0; p < status.processes.size(); ++p) {
    const JobProcess& process = status.processes[p];
    rows.push_back({fmt::format("{}", p), process.name, process.computer,
                    process.pid == 0 ? std::string() : fmt::format("{}", process.pid), process.state,
                    cells_text(process)});
    if (!several) continue;
    rows.back().insert(rows.back().end(), {process.address, traffic_text(process.frames_sent, process.bytes_sent),
                                           traffic_text(process.frames_received, process.bytes_received)});
  }
  return text + '\n' + table(rows) + ways_text(status);
}

}  // namespace aplib::launch::ctl
