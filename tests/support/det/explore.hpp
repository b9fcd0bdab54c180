// SPDX-License-Identifier: MIT
// explore: runs a scenario with many seeds and stops at the first failure.
//
//   struct Handover {                                   // made anew for every seed
//     static constexpr int thread_count = 2;
//     DetAtomic<bool> ready{false};
//     DetPlain<int> value;
//     void thread(int me) { if (me == 0) { value.write(7); ready.store(true, std::memory_order_release); } else {
//     ... } }
//     void finish() {}                                  // after all have ended: last checks, by throwing nothing
//     and calling EXPECT_*
//   };
//   Outcome outcome = explore<Handover>(1000);
//   EXPECT_TRUE(outcome.ok) << outcome.failure;
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atomic.hpp"
#include "scheduler.hpp"

namespace aplib::det {

struct Exploration {
  Memory memory = Memory::weak;
  std::uint64_t first_seed = 1;
  bool timeouts_fail = true;  ///< a timed wait that had to time out is a lost wake-up
  bool spurious_wakes = true;
  std::uint64_t step_count_max = 100'000;
};

/// DET_SEED=n in the environment runs only that seed.
template <class Make>
  requires std::invocable<Make>
Outcome explore_with(std::uint64_t seed_count, const Exploration& how, Make make) {
  Scheduler scheduler;
  Settings settings;
  settings.memory = how.memory;
  settings.spurious_wakes = how.spurious_wakes;
  settings.step_count_max = how.step_count_max;
  std::uint64_t first = how.first_seed;
  if (const char* only = std::getenv("DET_SEED"); only != nullptr) {
    first = std::strtoull(only, nullptr, 0);
    seed_count = 1;
  }
  Outcome outcome;
  for (std::uint64_t seed = first; seed < first + seed_count; ++seed) {
    auto scenario = make();  // a pointer: stacks of a failed run may still refer to it
    std::vector<std::function<void()>> threads;
    for (int i = 0; i < scenario->thread_count; ++i) {
      threads.emplace_back([&scenario, i] { scenario->thread(i); });
    }
    settings.seed = seed;
    outcome = scheduler.run(settings, threads);
    if (outcome.ok && how.timeouts_fail && outcome.timeout_count > 0) {
      outcome.ok = false;
      outcome.failure =
          "seed " + std::to_string(seed) + ": a timed wait ran out while nobody else could go on: a lost wake-up";
    }
    if (!outcome.ok) return outcome;
    if constexpr (requires { scenario->finish(); }) scenario->finish();
  }
  return outcome;
}

template <class Scenario>
Outcome explore(std::uint64_t seed_count, const Exploration& how = {}) {
  return explore_with(seed_count, how, [] { return std::make_unique<Scenario>(); });
}

}  // namespace aplib::det
