// SPDX-License-Identifier: MIT
#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "aplib/aplib.hpp"
#include "benches.hpp"

namespace apbench {
aplib::Machine& Machines::get(unsigned cells, unsigned threads) {
  std::unique_ptr<aplib::Machine>& machine = machines_[{cells, threads}];
  if (machine == nullptr) {
    aplib::Options options = aplib::Options::from_environment();
    options.cells = {cells, 1};
    options.threads = threads;
    machine = std::make_unique<aplib::Machine>(options);
  }
  return *machine;
}

aplib::Machine& Machines::only(unsigned cells, unsigned threads) {
  const std::pair wanted{cells, threads};
  std::erase_if(machines_, [&](const auto& entry) { return entry.first != wanted; });
  return get(cells, threads);
}

void run_cells(aplib::Machine& machine, const std::function<void()>& program) {
  const aplib::Report report = machine.run(program);
  if (report.exit_status != 0) {
    throw std::runtime_error(
        fmt::format("the measured machine ended with status {}: {}", report.exit_status, report.reason));
  }
}

void run_placed(aplib::Machine& machine, const std::function<void()>& program) {
  constexpr int attempts = 5;
  const bool apart = machine.options().threads == 2;
  for (int i = 0; i < attempts; ++i) {
    std::array<std::uint32_t, 2> processor{};
    run_cells(machine, [&program, &processor] {
      program();
      processor[aplib::index(aplib::this_cell::id())] = aplib::this_cell::processor();
    });
    if ((processor[0] != processor[1]) == apart) return;
  }
  throw std::runtime_error(
      fmt::format("the machine put cells 0 and 1 {} the same processor in {} runs", apart ? "on" : "not on", attempts));
}

std::uint64_t window_of(std::size_t bytes) {
  constexpr std::size_t under_way_max = 16U << 20;
  return std::clamp<std::uint64_t>(under_way_max / std::max<std::size_t>(bytes, 1), 4, 64);
}

bool Wishes::wants(std::string_view case_name) const {
  return case_names.empty() || std::find(case_names.begin(), case_names.end(), case_name) != case_names.end();
}

const std::vector<int>& usable_cores() {
  static const std::vector<int> all = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    std::vector<int> cores;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(static_cast<std::size_t>(i), &set)) cores.push_back(i);
    }
    return cores;
  }();
  return all;
}

const std::vector<Bench>& benches() {
  static const std::vector<std::string_view> message_cases{"two-processors", "two-processors-posted", "one-processor",
                                                           "one-processor-posted"};
  static const std::vector<std::string_view> put_cases{"two-processors", "one-processor", "stream", "memcpy", "rate"};
  static const std::vector<std::string_view> get_cases{
      "two-processors", "two-processors-fresh", "one-processor", "stream", "fetch-add", "fetch-add-contended"};
  static const std::vector<std::string_view> collective_cases{"2-on-2", "8-on-2", "32-on-2"};
  static const std::vector<Bench> table{
      {"latency", "one way, half a ping-pong", message_cases, true, true, plan_latency},
      {"bandwidth", "windows of messages, then an acknowledgement", message_cases, true, true, plan_bandwidth},
      {"rate", "messages of 8 B, one way", {"two-processors", "two-processors-posted"}, false, true, plan_rate},
      {"put", "to visibility, half a ping-pong; streams beside memcpy between the same buffers", put_cases, true, true,
       plan_put},
      {"get", "until the data is here; streams; remote atomics", get_cases, true, true, plan_get},
      {"switch", "one yield between two tasks of a cell", {"one-cell"}, false, true, plan_switch},
      {"spawn", "create, run, end and join a task", {"one-cell"}, false, true, plan_spawn},
      {"barrier", "cells on processors", collective_cases, false, true, plan_barrier},
      {"reduce", "sum of one double over all cells", collective_cases, false, true, plan_reduce},
      {"idle", "processor time of a machine whose cells all wait", {"two-processors"}, false, true, plan_idle},
      {"scg",
       "the solver, 300 x 300 and 1200 x 1200: cells on threads",
       {"1x1-on-1", "2x1-on-2", "8x8-on-2", "2x1-on-2-1200", "8x8-on-2-1200", "2x1-over-1x1", "8x8-over-2x1",
        "8x8-over-2x1-1200"},
       false,
       true,
       plan_scg},
      {"load",
       "instances of a program file, beside dlmopen and copy-plus-dlopen; programs in instances beside programs alone "
       "(not part of all)",
       {"instance", "dlmopen", "copy-dlopen", "instance-memory", "dlmopen-memory", "copy-memory", "instance-text",
        "instances", "dlmopens", "unload", "throw", "loop", "hello-1000"},
       false,
       false,
       plan_load},
      {"hosts",
       "between the processes of a machine that aprun starts (not part of all; bench-net has the floors)",
       {"latency", "latency-posted", "stream", "stream-posted", "stream-tls", "stream-posted-tls", "round-trip-of-32",
        "sum-of-32", "sum-over-round-trip", "start-64-processes"},
       true,
       false,
       plan_hosts},
      {"module",
       "each module between two processes: alone, and below messages, puts and gets of cells (not part of all)",
       module_cases(), true, false, plan_module,
       "MODULE-latency, -rate, -stream, -put, -put-stream, -get, -get-stream; MODULE-cells-latency, -cells-stream, "
       "-cells-put, -cells-put-stream, -cells-get, -cells-get-stream, -cells-fetch-add"},
      {"floors",
       "what the machine itself can do (not part of all)",
       {"cache-line", "cache-line-pause", "memcpy", "memcpy-both-sides", "context-switch"},
       true,
       false,
       plan_floors},
  };
  return table;
}

}  // namespace apbench
