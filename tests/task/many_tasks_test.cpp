// SPDX-License-Identifier: MIT
// Many tasks: alive at once, and one after another.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

// All are alive at the same time. Each has run and waits on its own stack.
void tasks_alive(std::uint64_t wanted, std::uint32_t cells, std::uint64_t bytes_each) {
  if (available_bytes() < wanted * bytes_each * 5 / 4) {
    GTEST_SKIP() << "needs " << (wanted * bytes_each * 5 / 4 >> 20U) << " MiB of memory";
  }
  Options options = options_of({{cells, 1}, 2});
  options.stack_bytes = sanitized ? 128 * 1024 : debug ? 16 * 1024 : 8 * 1024;  // their frames are larger
  std::atomic<std::uint64_t> alive{0};
  std::atomic<std::uint64_t> most{0};
  std::atomic<std::uint64_t> sum{0};
  Machine machine(options);
  const Report report = machine.run([&] {
    const std::uint64_t mine = wanted / cells;
    std::vector<Task> tasks;
    tasks.reserve(mine);
    bool go = false;
    for (std::uint64_t i = 0; i < mine; ++i) {
      tasks.push_back(spawn([&, i] {
        const std::uint64_t now = alive.fetch_add(1) + 1;
        for (std::uint64_t seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        while (!go) static_cast<void>(receive({.type = 1}));
        sum.fetch_add(i);
        alive.fetch_sub(1);
      }));
      if (i % 1000 == 999) this_task::yield();
    }
    this_task::yield();
    barrier();
    go = true;
    for (const Task& task : tasks) send(this_cell::id(), std::span<const std::byte>{}, {.task = task.id(), .type = 1});
    for (Task& task : tasks) task.join();
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_EQ(most.load(), wanted);
  EXPECT_EQ(alive.load(), 0U);
  const std::uint64_t each = wanted / cells;
  EXPECT_EQ(sum.load(), cells * (each * (each - 1) / 2));
}

TEST(ManyTasks, AMillionAliveInOneProcess) {
  if (sanitized) {
    tasks_alive(1'000, 4, 64 * 1024);
  } else {
    tasks_alive(debug ? 100'000 : 1'000'000, 4, 8 * 1024);
  }
}

TEST(ManyTasks, OneCellHoldsHundredsOfThousands) { tasks_alive(sanitized ? 1'000 : 200'000, 1, 8 * 1024); }

TEST(ManyTasks, EndedTasksGiveTheirStacksAndIdsBack) {
  const std::uint64_t count = scaled(300'000, 100);
  run_well({{1, 1}, 1}, [&] {
    std::uint64_t ran = 0;
    std::uint64_t after_warm_up = 0;
    std::uint32_t largest_id = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      Task task = spawn([&] { ++ran; });
      largest_id = std::max(largest_id, index(task.id()));
      task.join();
      if (i == count / 10) after_warm_up = resident_bytes();
    }
    EXPECT_EQ(ran, count);
    EXPECT_LT(largest_id, 10'000U);
    EXPECT_TRUE(sanitized || resident_bytes() < after_warm_up + (std::uint64_t{32} << 20U)) << resident_bytes();
  });
}

TEST(ManyTasks, DetachedTasksGiveTheirStacksBackToo) {
  const std::uint64_t count = scaled(300'000, 100);
  run_well({{2, 1}, 2}, [&] {
    std::uint64_t ran = 0;
    std::uint64_t after_warm_up = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      spawn([&] { ++ran; }).detach();
      if (i % 100 == 99) this_task::yield();
      if (i == count / 10) after_warm_up = resident_bytes();
    }
    this_task::yield();
    EXPECT_EQ(ran, count);
    EXPECT_TRUE(sanitized || resident_bytes() < after_warm_up + (std::uint64_t{64} << 20U)) << resident_bytes();
  });
}

}  // namespace
}  // namespace aplib
