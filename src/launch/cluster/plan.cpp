// SPDX-License-Identifier: MIT
#include "launch/cluster/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "launch/cluster/document.hpp"

namespace aplib::launch::cluster {
namespace {

constexpr std::size_t columns = 8;
using Row = std::array<std::string, columns>;

std::string_view secure_text(std::string_view secure) {
  if (secure == "tls") return "tls: encrypted, and both ends prove that they know the job's key";
  if (secure == "off") return "off: neither encrypted nor checked";
  return "auth: both ends of a connection prove that they know the job's key";
}

std::string cells_text(const PlannedHost& host) {
  if (host.cells == 0) return "none";
  if (host.cells == 1) return fmt::format("{}", host.first_cell);
  return fmt::format("{}-{} ({})", host.first_cell, host.first_cell + host.cells - 1, host.cells);
}

/// A word of a command line as one would type it.
std::string word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of(" \t\n\"'\\$`*?[]{}();&|<>#!~") == text.npos;
  return plain ? text : quoted(text);
}

std::string table(const std::vector<Row>& rows) {
  std::array<std::size_t, columns> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      if (widths[c] > 0) line += fmt::format("{:{}}  ", row[c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string hosts_text(const ClusterPlan& plan) {
  double speeds = 0;
  for (const PlannedHost& host : plan.hosts) speeds += host.speed;
  std::vector<Row> rows{
      {"process", "host", "launch", "cells", "threads", speeds > 0 ? "speed" : "", "address", "because"}};
  for (std::size_t p = 0; p < plan.hosts.size(); ++p) {
    const PlannedHost& host = plan.hosts[p];
    rows.push_back({fmt::format("{}", p), host.name, std::string(launch_text(host.launch)), cells_text(host),
                    host.threads > 0 ? fmt::format("{}", host.threads) : "",
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

std::string cluster_plan_text(const ClusterPlan& plan) {
  std::string text;
  const auto line = [&text](std::string_view name, std::string_view value) {
    if (!value.empty()) text += fmt::format("{:<13}{}\n", name, value);
  };
  line("file", plan.file);
  line("host program", plan.host_program);
  line("program", plan.program);
  line("build-id", plan.build_id.empty() ? "none" : plan.build_id);
  std::string args;
  for (const std::string& each : plan.args) args += (args.empty() ? "" : " ") + word(each);
  line("arguments", args);
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
  line("security", secure_text(plan.secure));
  return text + '\n' + hosts_text(plan);
}

}  // namespace aplib::launch::cluster
