// SPDX-License-Identifier: MIT
// idle: processor time that a machine uses while all its cells wait.
#include <sys/resource.h>

#include <chrono>

#include "aplib/aplib.hpp"
#include "benches.hpp"

namespace apbench {
namespace {

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Share of one core, in percent. Cell 0 sleeps (so that the machine is not in deadlock); every other cell waits for
// a message.
double busy_percent(aplib::Machine& machine, double length_seconds) {
  double percent = 0;
  run_cells(machine, [&percent, length_seconds] {
    if (aplib::index(aplib::this_cell::id()) != 0) {
      aplib::Message message = aplib::receive({.cell = aplib::CellId{0}});
      return;
    }
    constexpr std::chrono::milliseconds settle{20};  // longer than any processor polls
    aplib::this_task::sleep_for(settle);
    const double start = now_seconds();
    const double used = processor_seconds();
    aplib::this_task::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(length_seconds * 1e9)));
    percent = (processor_seconds() - used) / (now_seconds() - start) * 100;
    for (std::uint32_t i = 1; i < aplib::this_machine::cell_count(); ++i) aplib::send(aplib::CellId{i}, 1);
  });
  return percent;
}

}  // namespace

void plan_idle(Plan& plan, Machines& machines, const Wishes& wishes) {
  if (!wishes.wants("two-processors")) return;
  const double length = wishes.idle_seconds;
  plan.push_back({.bench = "idle",
                  .case_name = "two-processors",
                  .bytes = 0,
                  .unit = "%",
                  .run = [&machines, length](std::uint64_t) { return busy_percent(machines.get(2, 2), length); },
                  .value = [](double percent, std::uint64_t) { return percent; },
                  .samples_max = 3,
                  .calibrated = false});
}

}  // namespace apbench
