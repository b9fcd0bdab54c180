// SPDX-License-Identifier: MIT
// Barrier and sum over all cells, back to back.
#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "aplib/aplib.hpp"
#include "benches.hpp"

namespace apbench {
namespace {

template <class Operation>
double repeat(aplib::Machine& machine, std::uint64_t count, Operation operation) {
  double seconds = 0;
  run_cells(machine, [&seconds, count, operation] {
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count / 5 + 4, 10'000); ++i) operation();
    const double start = now_seconds();
    for (std::uint64_t i = 0; i < count; ++i) operation();
    if (aplib::index(aplib::this_cell::id()) == 0) seconds = now_seconds() - start;
  });
  return seconds;
}

template <class Operation>
void plan_cases(Plan& plan, Machines& machines, const Wishes& wishes, const char* bench, std::size_t bytes,
                Operation operation) {
  for (const unsigned cells : {2U, 8U, 32U}) {
    const std::string name = fmt::format("{}-on-2", cells);
    if (!wishes.wants(name)) continue;
    plan.push_back(
        {.bench = bench,
         .case_name = name,
         .bytes = bytes,
         .unit = "ns",
         .run = [&machines, cells,
                 operation](std::uint64_t n) { return repeat(machines.get(cells, 2), n, [&] { operation(cells); }); },
         .value = nanoseconds_per_operation});
  }
}

}  // namespace

void plan_barrier(Plan& plan, Machines& machines, const Wishes& wishes) {
  plan_cases(plan, machines, wishes, "barrier", 0, [](unsigned) { aplib::barrier(); });
}

void plan_reduce(Plan& plan, Machines& machines, const Wishes& wishes) {
  plan_cases(plan, machines, wishes, "reduce", sizeof(double), [](unsigned cells) {
    const double sum = aplib::reduce_sum(1.0);
    if (sum != static_cast<double>(cells)) {
      throw std::runtime_error(fmt::format("the sum of 1 over {} cells came out as {}", cells, sum));
    }
  });
}

}  // namespace apbench
