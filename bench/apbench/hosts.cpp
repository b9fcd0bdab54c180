// SPDX-License-Identifier: MIT
// hosts: communication between the processes of a machine. It starts machines of two processes with aprun, on a core
// each, which run bench-cells, and one of 64 processes, which runs hello. bench-net gives the floors.
#include <fmt/core.h>

#include "benches.hpp"
#include "child.hpp"
#include "cluster_file.hpp"

namespace apbench {
namespace {

constexpr int samples_max = 5;

struct Case {
  const char* name;
  const char* what;  // bench-cells' name for it
  const char* unit;
  unsigned cells_each;
  const char* secure;
  std::vector<std::size_t> bytes;
};

const std::vector<Case>& cases() {
  static const std::vector<std::size_t> large{65536, 1U << 20};
  static const std::vector<Case> table{
      {"latency", "latency", "ns", 1, "auth", {8}},
      {"latency-posted", "latency-posted", "ns", 1, "auth", {8}},
      {"stream", "stream", "GB/s", 1, "auth", large},
      {"stream-posted", "stream-posted", "GB/s", 1, "auth", large},
      {"stream-tls", "stream", "GB/s", 1, "tls", {1U << 20}},
      {"stream-posted-tls", "stream-posted", "GB/s", 1, "tls", {1U << 20}},
      {"round-trip-of-32", "round-trip", "ns", 16, "auth", {8}},
      {"sum-of-32", "sum", "ns", 16, "auth", {8}},
      {"sum-over-round-trip", "sum-over-round-trip", "x", 16, "auth", {8}},
  };
  return table;
}

void add(Plan& plan, const char* name, std::size_t bytes, const char* unit, std::function<double()> run) {
  plan.push_back({.bench = "hosts",
                  .case_name = name,
                  .bytes = bytes,
                  .unit = unit,
                  .run = [run = std::move(run)](std::uint64_t) { return run(); },
                  .value = [](double value, std::uint64_t) { return value; },
                  .samples_max = samples_max,
                  .calibrated = false});
}

/// Seconds from the start to the end of a machine of 64 processes and 1,024 cells.
double start_and_end() {
  constexpr unsigned processes = 64;
  constexpr unsigned cells_each = 16;
  const ClusterFile file(many_processes(processes, cells_each));
  const double start = now_seconds();
  static_cast<void>(output_of({beside("aprun"), "-f", file.path(), beside("bench-hello")}));
  return now_seconds() - start;
}

}  // namespace

void plan_hosts(Plan& plan, Machines&, const Wishes& wishes) {
  for (const Case& c : cases()) {
    if (!wishes.wants(c.name)) continue;
    for (const std::size_t bytes : wishes.bytes.empty() ? c.bytes : wishes.bytes) {
      add(plan, c.name, bytes, c.unit, [&c, bytes, own = wishes.cluster] {
        const std::vector<std::string> program{"bench-cells", c.what, std::to_string(bytes)};
        if (!own.empty()) return measured_on(own, program);
        // tcp, though two processes of one computer have better: the figures are those between hosts.
        const ClusterFile file(
            two_processes(c.cells_each, fmt::format("module = \"tcp\"\nsecure = \"{}\"\n", c.secure)));
        return measured_on(file.path(), program);
      });
    }
  }
  if (wishes.wants("start-64-processes")) add(plan, "start-64-processes", 0, "s", start_and_end);
}

}  // namespace apbench
