// SPDX-License-Identifier: MIT
// module: the figures of each usable module between two processes of this computer, on a core each: alone
// (bench-module), and under whole machines that send messages, put and get (bench-cells, bench-puts). bench/compare has
// the floors: sockets, and libfabric's own fi_pingpong.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

#include "benches.hpp"
#include "child.hpp"
#include "cluster_file.hpp"

namespace apbench {
namespace {

constexpr int samples_max = 5;
constexpr std::size_t mib = 1U << 20;

struct Module {
  const char* name;
  const char* module;
  const char* provider;  // of rdma; empty: one with hardware
};
constexpr std::array modules{Module{"tcp", "tcp", ""}, Module{"shm", "shm", ""}, Module{"rdma", "rdma", ""},
                             Module{"rdma-tcp", "rdma", "tcp"}, Module{"rdma-shm", "rdma", "shm"}};

enum class By { module, message, put };

struct Case {
  const char* name;
  const char* what;  // the measuring program's name for it
  By by;
  std::size_t bytes;
  const char* unit;
  bool remote_memory;  // only modules that have it
};
constexpr std::array cases{Case{"latency", "latency", By::module, 8, "ns", false},
                           Case{"rate", "rate", By::module, 8, "M/s", false},
                           Case{"stream", "stream", By::module, mib, "GB/s", false},
                           Case{"put", "put", By::module, 8, "ns", true},
                           Case{"put-stream", "put-stream", By::module, mib, "GB/s", true},
                           Case{"get", "get", By::module, 8, "ns", true},
                           Case{"get-stream", "get-stream", By::module, mib, "GB/s", true},
                           Case{"cells-latency", "latency", By::message, 8, "ns", false},
                           Case{"cells-stream", "stream", By::message, mib, "GB/s", false},
                           Case{"cells-put", "put", By::put, 8, "ns", false},
                           Case{"cells-put-stream", "put-stream", By::put, mib, "GB/s", false},
                           Case{"cells-get", "get", By::put, 8, "ns", false},
                           Case{"cells-get-stream", "get-stream", By::put, mib, "GB/s", false},
                           Case{"cells-fetch-add", "fetch-add", By::put, 8, "ns", false}};

std::string name_of(const Module& module, const Case& c) { return fmt::format("{}-{}", module.name, c.name); }

std::string with_provider(const Module& module) {
  return *module.provider == '\0' ? module.module : fmt::format("{}:{}", module.module, module.provider);
}

double measured(const Module& module, const Case& c, std::size_t bytes) {
  const std::string size = std::to_string(bytes);
  if (c.by == By::module) {
    return parse_number("bench-module", output_of({beside("bench-module"), with_provider(module), c.what, size}));
  }
  std::string comm = fmt::format("module = \"{}\"\n", module.module);
  if (*module.provider != '\0') comm += fmt::format("provider = \"{}\"\n", module.provider);
  const ClusterFile file(two_processes(1, comm));
  return measured_on(file.path(), {c.by == By::message ? "bench-cells" : "bench-puts", c.what, size});
}

/// "yes", "yes, with remote memory", or why not.
std::string usable(const Module& module) {
  std::string answer = output_of({beside("bench-module"), with_provider(module), "usable"});
  if (!answer.empty() && answer.back() == '\n') answer.pop_back();
  return answer;
}

}  // namespace

const std::vector<std::string_view>& module_cases() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Module& module : modules) {
      for (const Case& c : cases) all.push_back(name_of(module, c));
    }
    return all;
  }();
  static const std::vector<std::string_view> views(names.begin(), names.end());
  return views;
}

std::vector<std::string> module_names() {
  std::vector<std::string> names;
  for (const Module& module : modules) names.emplace_back(module.name);
  return names;
}

void plan_module(Plan& plan, Machines&, const Wishes& wishes) {
  for (const Module& module : modules) {
    const bool none =
        std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return wishes.wants(name_of(module, c)); });
    if (none || !(wishes.module.empty() || wishes.module == module.name)) continue;
    const std::string answer = usable(module);
    if (!answer.starts_with("yes")) {
      const std::string complaint = fmt::format("{} cannot be measured: {}", module.name, answer);
      if (!wishes.module.empty()) throw std::runtime_error(complaint);
      std::fputs(fmt::format("apbench: {}\n", complaint).c_str(), stderr);
      continue;
    }
    const bool remote_memory = answer.find("remote memory") != std::string::npos;
    for (const Case& c : cases) {
      const std::string name = name_of(module, c);
      if (!wishes.wants(name) || (c.remote_memory && !remote_memory)) continue;
      for (const std::size_t bytes : wishes.bytes.empty() ? std::vector<std::size_t>{c.bytes} : wishes.bytes) {
        plan.push_back({.bench = "module",
                        .case_name = name,
                        .bytes = bytes,
                        .unit = c.unit,
                        .run = [&module, &c, bytes](std::uint64_t) { return measured(module, c, bytes); },
                        .value = [](double value, std::uint64_t) { return value; },
                        .samples_max = samples_max,
                        .calibrated = false});
      }
    }
  }
}

}  // namespace apbench
