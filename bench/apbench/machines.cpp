// SPDX-License-Identifier: MIT
#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <stdexcept>

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

void run_cells(aplib::Machine& machine, const std::function<void()>& program) {
  const aplib::Report report = machine.run(program);
  if (report.exit_status != 0) {
    throw std::runtime_error(
        fmt::format("the measured machine ended with status {}: {}", report.exit_status, report.reason));
  }
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
  static const std::vector<std::string_view> collective_cases{"2-on-2", "8-on-2", "32-on-2"};
  static const std::vector<Bench> table{
      {"latency", "one way, half a ping-pong", message_cases, true, true, plan_latency},
      {"bandwidth", "windows of messages, then an acknowledgement", message_cases, true, true, plan_bandwidth},
      {"rate", "messages of 8 B, one way", {"two-processors", "two-processors-posted"}, false, true, plan_rate},
      {"switch", "one yield between two tasks of a cell", {"one-cell"}, false, true, plan_switch},
      {"spawn", "create, run, end and join a task", {"one-cell"}, false, true, plan_spawn},
      {"barrier", "cells on processors", collective_cases, false, true, plan_barrier},
      {"reduce", "sum of one double over all cells", collective_cases, false, true, plan_reduce},
      {"idle", "processor time of a machine whose cells all wait", {"two-processors"}, false, true, plan_idle},
      {"scg",
       "the solver, 300 x 300: cells on threads",
       {"1x1-on-1", "2x1-on-2", "8x8-on-2", "2x1-over-1x1", "8x8-over-2x1"},
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
