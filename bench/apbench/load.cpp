// SPDX-License-Identifier: MIT
// load: what one more instance of a program costs, compared with dlmopen and with copying and dlopen, and what a
// program in an instance costs, compared with one that runs alone. The measuring program is bench-load beside apbench,
// which uses the loader directly.
#include <fmt/core.h>

#include <array>

#include "benches.hpp"
#include "child.hpp"
#include "cluster_file.hpp"

namespace apbench {
namespace {

constexpr int samples_max = 5;

double measured_by(const char* what, const char* how) {
  return parse_number("bench-load", output_of({beside("bench-load"), what, how, beside("bench-program")}));
}

/// Speed of the loop in an instance over that of a program that runs alone: the same source, compiled with apc++ and
/// with c++. The runs alternate, and the best of each counts, because disturbances only make a loop slower.
double loop_speed() {
  constexpr int rounds = 3;
  double alone = 1e9;
  double instance = 1e9;
  for (int i = 0; i < rounds; ++i) {
    alone = std::min(alone, parse_number("bench-loop-alone", output_of({beside("bench-loop-alone")})));
    instance =
        std::min(instance, parse_number("bench-loop", output_of({beside("aprun"), "-n", "1", beside("bench-loop")})));
  }
  return alone / instance;
}

double hello_seconds() {
  const double start = now_seconds();
  static_cast<void>(output_of({beside("aprun"), "-n", "1000", beside("bench-hello")}));
  return now_seconds() - start;
}

struct Case {
  const char* name;
  const char* unit;
  double (*run)();
};

constexpr std::array cases{
    Case{"instance", "us", [] { return measured_by("time", "instance"); }},
    Case{"dlmopen", "us", [] { return measured_by("time", "dlmopen"); }},
    Case{"copy-dlopen", "us", [] { return measured_by("time", "copy"); }},
    Case{"instance-memory", "kB", [] { return measured_by("memory", "instance"); }},
    Case{"dlmopen-memory", "kB", [] { return measured_by("memory", "dlmopen"); }},
    Case{"copy-memory", "kB", [] { return measured_by("memory", "copy"); }},
    Case{"instance-text", "kB", [] { return measured_by("text", "instance"); }},
    Case{"instances", "", [] { return measured_by("count", "instance"); }},
    Case{"dlmopens", "", [] { return measured_by("count", "dlmopen"); }},
    Case{"unload", "us", [] { return measured_by("unload", "instance"); }},
    Case{"throw", "us", [] { return measured_by("throw", "instance"); }},
    Case{"loop", "x", loop_speed},
    Case{"hello-1000", "s", hello_seconds},
};

}  // namespace

void plan_load(Plan& plan, Machines&, const Wishes& wishes) {
  for (const Case& one : cases) {
    if (!wishes.wants(one.name)) continue;
    plan.push_back({.bench = "load",
                    .case_name = one.name,
                    .bytes = 0,
                    .unit = one.unit,
                    .run = [run = one.run](std::uint64_t) { return run(); },
                    .value = [](double value, std::uint64_t) { return value; },
                    .samples_max = samples_max,
                    .calibrated = false});
  }
}

}  // namespace apbench
