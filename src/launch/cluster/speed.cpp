// SPDX-License-Identifier: MIT
#include "launch/cluster/speed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <latch>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/options.hpp"
#include "base/cpus.hpp"
#include "launch/cluster/command_number.hpp"
#include "launch/cluster/speed_kernel.hpp"
#include "launch/cluster/speed_meter.hpp"

namespace aplib::launch {
namespace {

/// More say nothing more about the speed, and each takes memory.
constexpr std::uint32_t threads_max = 1024;

std::unique_ptr<SpeedKernel> make_kernel(Speed::Kind kind, std::uint32_t threads) {
  return kind == Speed::Kind::compute ? make_compute_kernel() : make_memory_kernel(memory_kernel_points(threads));
}

/// Rate of one thread; all begin together. 0: it could not get its memory.
double run(Speed::Kind kind, std::uint32_t threads, std::chrono::milliseconds time, std::latch& start) {
  std::unique_ptr<SpeedKernel> kernel;
  try {
    kernel = make_kernel(kind, threads);
  } catch (const std::bad_alloc&) {
    start.count_down();
    return 0;
  }
  start.arrive_and_wait();
  SpeedMeter meter(SpeedMeter::Clock::now());
  do {
    const double work = kernel->step();
    meter.add(work, SpeedMeter::Clock::now());
  } while (!meter.enough(time));
  return std::isfinite(kernel->result()) ? meter.rate() : 0;
}

double measure(Speed::Kind kind, std::uint32_t threads, std::chrono::milliseconds time) {
  std::vector<double> rates(threads, 0);
  std::latch start(threads);
  std::vector<std::jthread> runners;
  try {
    for (std::uint32_t t = 1; t < threads; ++t)
      runners.emplace_back([&, t] { rates[t] = run(kind, threads, time, start); });
  } catch (const std::system_error& error) {
    start.count_down(threads - static_cast<std::ptrdiff_t>(runners.size()));
    throw Error(Errc::failed, fmt::format("speed: {} threads cannot be started: {}; use fewer threads, or a number as "
                                          "speed",
                                          threads, error.code().message()));
  }
  rates[0] = run(kind, threads, time, start);
  runners.clear();
  double sum = 0;
  for (const double rate : rates) {
    if (!(rate > 0))
      throw Error(Errc::failed, "speed: no memory for a run of the kind \"memory\"; use \"compute\" or a number");
    sum += rate;
  }
  return sum;
}

}  // namespace

double measure_speed(const Speed& speed, std::uint32_t threads, std::chrono::milliseconds time) {
  switch (speed.kind) {
    case Speed::Kind::number:
      return speed.number;
    case Speed::Kind::command:
      return command_number("speed-command", speed.command, speed_command_time_max);
    case Speed::Kind::memory:
    case Speed::Kind::compute:
      break;
  }
  return measure(speed.kind, std::clamp(threads, 1U, threads_max), time);
}

std::uint32_t speed_threads(const std::string& threads) {
  Options options;
  if (!threads.empty()) options.set("threads", threads);
  if (options.threads != Options::threads_auto && options.threads != Options::threads_per_cell) return options.threads;
  return usable_cpu_count(allowed_cpus().size(), cpu_quota());
}

HostSpeed measure_host(const Speed& speed, const std::string& threads, bool needed) {
  const std::uint32_t count = speed_threads(threads);
  return {.speed = needed ? measure_speed(speed, count) : 0, .threads = count};
}

}  // namespace aplib::launch
