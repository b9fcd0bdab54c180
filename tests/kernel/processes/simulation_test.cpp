// SPDX-License-Identifier: MIT
// Seeded simulation. Machines of random shapes run programs of random messages and collectives, on a network that
// delays, reorders peers, cuts everything into pieces and has little room. Sometimes a process dies in the middle. For
// every seed, either everything arrives in order with the right sums, or there is one clear failure and everything
// ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "aplib/aplib.hpp"
#include "machines.hpp"
#include "processes.hpp"

namespace aplib {
namespace {

using testing_support::cell;
using testing_support::me;
using testing_support::Processes;
using testing_support::ProcessesOutcome;

std::uint64_t first_seed() { return testing_support::number_from_environment("TEST_SEED", 1); }

/// The same random numbers on every cell, for what all do together.
struct Plan {
  Grid grid{1, 1};
  std::vector<std::uint32_t> cells;  ///< How many cells each process carries,
  CellMap map;                       ///< and which ones.
  std::uint32_t threads = 1;
  comm::loop::LoopFaults faults;
  std::uint32_t rounds = 0;
  std::uint64_t seed = 0;

  explicit Plan(std::uint64_t of_seed) : seed(of_seed) {
    std::mt19937_64 draw(seed);
    const auto below = [&](std::uint64_t limit) { return static_cast<std::uint32_t>(draw() % limit); };
    const std::uint32_t processes = 2 + below(7);
    std::uint32_t count = 0;
    for (std::uint32_t p = 0; p < processes; ++p) {
      cells.push_back(below(8) == 0 ? 0 : 1 + below(4));
      count += cells.back();
    }
    if (count == 0) cells[0] = count = 2;
    grid = count % 3 == 0 ? Grid{count / 3, 3} : count % 2 == 0 ? Grid{count / 2, 2} : Grid{count, 1};
    threads = 1 + below(2);
    faults.delay_polls_max = below(4);
    faults.delay_time_max = std::chrono::microseconds(below(3) * 300);
    faults.shuffle_peers = below(2) == 0;
    faults.piece_bytes_max = below(2) == 0 ? 0 : 1 + below(3000);
    faults.capacity_bytes = below(2) == 0 ? 256 * 1024 : 500 + below(5000);
    faults.hold_back_bytes = below(2) == 0 ? 0 : 200;
    rounds = 6 + below(6);
    map = CellMap::consecutive(cells);
    if (below(2) == 0) {  // dealt out one by one
      std::vector<std::uint32_t> process_of_cell;
      for (std::uint32_t c = 0; c < count; ++c) process_of_cell.push_back(map.process_of(c));
      std::ranges::shuffle(process_of_cell, draw);
      map = CellMap::of(processes, process_of_cell);
    }
  }
};

std::size_t size_of(std::mt19937_64& draw) {
  const std::uint64_t kind = draw() % 10;
  return kind < 6 ? draw() % 41 : kind < 9 ? draw() % 3000 : draw() % 60'000;
}

/// In every round each cell sends numbered messages to some others and receives what the common random numbers say it
/// gets. Collectives follow.
void program(const Plan& plan, const std::function<void(std::uint32_t round)>& strike) {
  const std::uint32_t count = this_machine::cell_count();
  std::mt19937_64 common(plan.seed * 77);
  for (std::uint32_t round = 0; round < plan.rounds; ++round) {
    strike(round);
    for (std::uint32_t from = 0; from < count; ++from) {
      const auto messages = static_cast<std::uint32_t>(common() % 5);
      for (std::uint32_t m = 0; m < messages; ++m) {
        const auto to = static_cast<std::uint32_t>(common() % count);
        const std::size_t size = size_of(common);
        if (from == me()) {
          std::vector<std::byte> body(size, std::byte(from * 7 + m + round));
          send(cell(to), std::span<const std::byte>(body), {.type = static_cast<std::int32_t>(from)});
        }
      }
    }
    // The same random numbers again, from the receivers' side.
    std::mt19937_64 again(plan.seed * 77 + round);
    barrier();
    const double sum = reduce_sum(1.0 / (me() + 1.0));
    double expected = 0;
    for (std::uint32_t c = 0; c < count; ++c) expected += 1.0 / (c + 1.0);
    ASSERT_NEAR(sum, expected, 1e-9);
    ASSERT_EQ(reduce_sum(1, Scope::row), static_cast<int>(this_machine::grid().nx));
    ASSERT_EQ(reduce_sum(1, Scope::column), static_cast<int>(this_machine::grid().ny));
    const auto root = static_cast<std::uint32_t>(again() % count);
    std::vector<std::byte> news(size_of(again), me() == root ? std::byte(round + 1) : std::byte(0));
    broadcast(cell(root), news);
    ASSERT_TRUE(testing_support::all_bytes_are(std::byte(round + 1), news)) << "in round " << round;
  }
  // Everything that was sent to this cell, by sender and in order.
  std::vector<std::vector<std::pair<std::size_t, std::byte>>> wanted(count);
  std::mt19937_64 draws(plan.seed * 77);
  for (std::uint32_t round = 0; round < plan.rounds; ++round) {
    for (std::uint32_t from = 0; from < count; ++from) {
      const auto messages = static_cast<std::uint32_t>(draws() % 5);
      for (std::uint32_t m = 0; m < messages; ++m) {
        const auto to = static_cast<std::uint32_t>(draws() % count);
        const std::size_t size = size_of(draws);
        if (to == me()) wanted[from].emplace_back(size, std::byte(from * 7 + m + round));
      }
    }
  }
  for (std::uint32_t from = 0; from < count; ++from) {
    for (const auto& [size, fill] : wanted[from]) {
      const Message message = receive({.type = static_cast<std::int32_t>(from)});
      ASSERT_EQ(message.size(), size);
      ASSERT_TRUE(testing_support::all_bytes_are(fill, message.bytes())) << "from " << from;
    }
  }
}

TEST(Simulation, AllArrivesWhateverTheNetworkDoes) {
  const std::uint64_t seeds = testing_support::scaled(25, 5);
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "TEST_SEED=" << seed);
    const Plan plan(seed);
    Processes processes(plan.grid, plan.map, plan.threads, plan.faults, seed);
    const ProcessesOutcome outcome = processes.run([&] { program(plan, [](std::uint32_t) {}); });
    ASSERT_EQ(outcome.failure(), "");
    ASSERT_EQ(outcome.status, 0);
    ASSERT_TRUE(outcome.over);
    if (HasFatalFailure()) return;
  }
}

TEST(Simulation, DeathAtAnyMomentIsOneFailureAndAnEnd) {
  const std::uint64_t seeds = testing_support::scaled(15, 3);
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "TEST_SEED=" << seed);
    const Plan plan(seed + 1000);
    std::mt19937_64 draw(seed);
    Processes processes(plan.grid, plan.map, plan.threads, plan.faults, seed);
    const auto victim = static_cast<std::uint32_t>(draw() % plan.cells.size());
    const auto moment = static_cast<std::uint32_t>(draw() % plan.rounds);
    const auto killer = static_cast<std::uint32_t>(draw() % plan.grid.count());
    std::atomic<bool> struck{false};
    const ProcessesOutcome outcome = processes.run([&] {
      program(plan, [&](std::uint32_t round) {
        if (round == moment && me() == killer && !struck.exchange(true))
          processes.lose(victim, "somebody pulled the plug");
      });
    });
    ASSERT_LE(outcome.failures.size(), 1U);
    if (!outcome.failures.empty()) {  // none: the process had nothing more to do
      ASSERT_NE(outcome.failure().find("is lost: "), std::string::npos) << outcome.failure();
      ASSERT_NE(outcome.failure().find("ws" + std::to_string(victim)), std::string::npos) << outcome.failure();
    }
  }
}

}  // namespace
}  // namespace aplib
