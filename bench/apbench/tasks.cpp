// SPDX-License-Identifier: MIT
// Tasks: the time of a yield, and of a task's whole life.
#include <array>

#include "aplib/aplib.hpp"
#include "benches.hpp"

namespace apbench {
namespace {

constexpr std::uint64_t batch = 64;  // tasks alive at a time

// Seconds of `count` yields by each of two tasks.
double yields(aplib::Machine& machine, std::uint64_t count) {
  double seconds = 0;
  run_cells(machine, [&seconds, count] {
    const auto yield_times = [](std::uint64_t times) {
      for (std::uint64_t i = 0; i < times; ++i) aplib::this_task::yield();
    };
    aplib::Task other = aplib::spawn([&yield_times, count] { yield_times(count + 2); });
    yield_times(1);  // the other task starts
    const double start = now_seconds();
    yield_times(count);
    seconds = now_seconds() - start;
    other.join();
  });
  return seconds;
}

// Seconds of `count` batches: create all, then join all.
double lives(aplib::Machine& machine, std::uint64_t count) {
  double seconds = 0;
  run_cells(machine, [&seconds, count] {
    std::array<aplib::Task, batch> tasks;
    std::uint64_t ended = 0;
    const auto live = [&tasks, &ended](std::uint64_t times) {
      for (std::uint64_t i = 0; i < times; ++i) {
        for (aplib::Task& task : tasks) task = aplib::spawn([&ended] { ++ended; });
        for (aplib::Task& task : tasks) task.join();
      }
    };
    live(4);
    const double start = now_seconds();
    live(count);
    seconds = now_seconds() - start;
  });
  return seconds;
}

}  // namespace

void plan_switch(Plan& plan, Machines& machines, const Wishes& wishes) {
  if (!wishes.wants("one-cell")) return;
  plan.push_back({.bench = "switch",
                  .case_name = "one-cell",
                  .bytes = 0,
                  .unit = "ns",
                  .run = [&machines](std::uint64_t n) { return yields(machines.get(1, 1), n); },
                  .value = [](double seconds, std::uint64_t n) { return nanoseconds_per_operation(seconds, 2 * n); }});
}

void plan_spawn(Plan& plan, Machines& machines, const Wishes& wishes) {
  if (!wishes.wants("one-cell")) return;
  plan.push_back(
      {.bench = "spawn",
       .case_name = "one-cell",
       .bytes = 0,
       .unit = "ns",
       .run = [&machines](std::uint64_t n) { return lives(machines.get(1, 1), n); },
       .value = [](double seconds, std::uint64_t n) { return nanoseconds_per_operation(seconds, batch * n); }});
}

}  // namespace apbench
