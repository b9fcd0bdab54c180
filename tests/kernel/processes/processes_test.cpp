// SPDX-License-Identifier: MIT
// Machines of several processes: messages, collectives, ends, failures and deadlocks, as in one process.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aplib/aplib.hpp"
#include "machines.hpp"
#include "module_around.hpp"
#include "processes.hpp"

namespace aplib {
namespace {

using testing_support::all_bytes_are;
using testing_support::cell;
using testing_support::me;
using testing_support::Processes;
using testing_support::ProcessesOutcome;

void expect_well(const ProcessesOutcome& outcome) {
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.failure(), "");
  EXPECT_TRUE(outcome.over);
}

TEST(Processes, MessageCrosses) {
  Processes processes({2, 1}, {1, 1});
  expect_well(processes.run([] {
    if (me() == 0) {
      send(cell(1), 42, {.type = 7});
      EXPECT_EQ(receive({.cell = cell(1)}).as<int>(), 43);
    } else {
      const Message message = receive({.type = 7});
      EXPECT_EQ(index(message.envelope().source), 0U);
      EXPECT_EQ(message.as<int>(), 42);
      send(cell(0), 43);
    }
  }));
}

TEST(Processes, EveryCellTalksToEveryOtherOfAnySize) {
  Processes processes({4, 3}, {5, 1, 6}, 2, {.delay_polls_max = 2, .piece_bytes_max = 5000});
  expect_well(processes.run([] {
    const std::uint32_t cells = this_machine::cell_count();
    const auto size_of = [](std::uint32_t from, std::uint32_t to) { return std::size_t{from} * 7001 * (to % 3) + to; };
    for (std::uint32_t to = 0; to < cells; ++to) {
      const std::vector<std::byte> body(size_of(me(), to), std::byte(me() + to));
      send(cell(to), std::span<const std::byte>(body));
    }
    for (std::uint32_t from = 0; from < cells; ++from) {
      const Message message = receive({.cell = cell(from)});
      ASSERT_EQ(message.size(), size_of(from, me()));
      ASSERT_TRUE(all_bytes_are(std::byte(from + me()), message.bytes())) << "from " << from;
    }
  }));
}

TEST(Processes, OrderIsKeptPerSender) {
  Processes processes({4, 1}, {2, 2}, 2, {.delay_polls_max = 3, .piece_bytes_max = 100, .hold_back_bytes = 64});
  constexpr std::uint32_t count = 3000;
  expect_well(processes.run([] {
    const std::uint32_t other = me() ^ 2U;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i % 50 == 0) {
        std::vector<std::uint32_t> large(10'000, i);
        send(cell(other), std::as_bytes(std::span<const std::uint32_t>(large)));
      } else {
        send(cell(other), i);
      }
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const Message message = receive({.cell = cell(other)});
      std::uint32_t number = 0;
      std::memcpy(&number, message.data(), sizeof number);
      ASSERT_EQ(number, i);
    }
  }));
}

TEST(Processes, LargeOnesGoStraightIntoAWaitingBuffer) {
  Processes processes({2, 1}, {1, 1}, 1, {.piece_bytes_max = 20'000});
  expect_well(processes.run([] {
    std::vector<std::uint64_t> data(100'000);
    for (int round = 0; round < 5; ++round) {
      if (me() == 0) {
        static_cast<void>(receive({.type = 1}));  // the other waits, or is about to
        std::iota(data.begin(), data.end(), round);
        send(cell(1), std::as_bytes(std::span<const std::uint64_t>(data)), {.type = 2});
      } else {
        send(cell(0), round, {.type = 1});
        receive_into(std::as_writable_bytes(std::span(data)), {.type = 2});
        std::vector<std::uint64_t> wanted(data.size());
        std::iota(wanted.begin(), wanted.end(), round);
        ASSERT_TRUE(data == wanted) << "in round " << round;
      }
    }
  }));
}

/// Sums of numbers that depend on the order of addition.
std::vector<std::uint64_t> sums_with(const CellMap& map, Grid grid, std::uint32_t threads) {
  std::array<std::uint64_t, 3> bits{};
  Processes processes(grid, map, threads);
  expect_well(processes.run([&] {
    const double mine = 1.0 / (me() + 3.0) * (me() % 2 == 0 ? 1e10 : -1e-3);
    const std::array<double, 3> results{reduce_sum(mine), reduce_sum(mine, Scope::row),
                                        reduce_sum(mine, Scope::column)};
    for (int round = 0; round < 20; ++round) EXPECT_EQ(reduce_sum(mine), results[0]);
    for (const Scope scope : {Scope::all, Scope::row, Scope::column}) {
      std::vector<double> numbers(3000);
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = mine / static_cast<double>(i + 1);
      const double third = reduce_sum(numbers[2], scope);
      reduce_sum(numbers, scope);
      EXPECT_EQ(std::memcmp(&numbers[0], &results[scope == Scope::all ? 0 : scope == Scope::row ? 1 : 2], 8), 0);
      EXPECT_EQ(std::memcmp(&numbers[2], &third, 8), 0);
    }
    if (me() == 0) {
      for (std::size_t i = 0; i < results.size(); ++i) std::memcpy(&bits[i], &results[i], sizeof(double));
    }
  }));
  return {bits.begin(), bits.end()};
}

std::vector<std::uint64_t> sums_on(const std::vector<std::uint32_t>& cells, Grid grid, std::uint32_t threads) {
  return sums_with(CellMap::consecutive(cells), grid, threads);
}

/// Process (c modulo the number of processes) carries cell c.
CellMap in_turns(std::uint32_t cells, std::uint32_t processes) {
  std::vector<std::uint32_t> process_of_cell;
  for (std::uint32_t c = 0; c < cells; ++c) process_of_cell.push_back(c % processes);
  return CellMap::of(processes, process_of_cell);
}

TEST(Processes, SumsAreTheSameBitsOnAnyPlacement) {
  const Grid grid{4, 3};
  const auto one = sums_on({12}, grid, 1);
  EXPECT_EQ(sums_on({6, 6}, grid, 2), one);
  EXPECT_EQ(sums_on({1, 2, 3, 6}, grid, 1), one);
  EXPECT_EQ(sums_on({5, 4, 3}, grid, 2), one);
  EXPECT_EQ(sums_on({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, grid, 1), one);
  EXPECT_EQ(sums_on({4, 0, 8}, grid, 1), one);
  EXPECT_EQ(sums_with(in_turns(12, 2), grid, 2), one);
  EXPECT_EQ(sums_with(in_turns(12, 5), grid, 1), one);
  const std::vector<std::uint32_t> mixed{2, 2, 0, 0, 0, 1, 0, 2, 1, 1, 1, 0};
  EXPECT_EQ(sums_with(CellMap::of(3, mixed), grid, 2), one);
}

// 260 cells that alternate: each process has as many pieces of the tree as cells.
TEST(Processes, ManyPiecesOfTheTreeCross) {
  const Grid grid{20, 13};
  EXPECT_EQ(sums_with(in_turns(260, 3), grid, 2), sums_on({260}, grid, 2));
}

TEST(Processes, AProcessCarriesAnyCells) {
  Processes processes({4, 2}, in_turns(8, 3), 2);
  const ProcessesOutcome outcome = processes.run([] {
    const std::uint32_t cells = this_machine::cell_count();
    EXPECT_EQ(this_cell::x() + this_cell::y() * 4, me());
    for (std::uint32_t to = 0; to < cells; ++to) send(cell(to), me() * 100 + to);
    for (std::uint32_t from = 0; from < cells; ++from)
      EXPECT_EQ(receive({.cell = cell(from)}).as<std::uint32_t>(), from * 100 + me());
    for (std::uint32_t root = 0; root < cells; ++root) {
      std::array<std::byte, 100> news{};
      if (me() == root) news.fill(std::byte(root + 1));
      broadcast(cell(root), news);
      EXPECT_EQ(news.back(), std::byte(root + 1));
    }
    status::post(1 << me());
    barrier();
    EXPECT_EQ(status::combined(), 0xff);
    this_task::exit(static_cast<int>(me()) + 1);
  });
  EXPECT_EQ(outcome.failure(), "");
  EXPECT_TRUE(outcome.over);
  // Statuses are reported in the order of the process's cells.
  EXPECT_EQ(outcome.reports[0].cell_status, (std::vector<int>{1, 4, 7}));
  EXPECT_EQ(outcome.reports[1].cell_status, (std::vector<int>{2, 5, 8}));
  EXPECT_EQ(outcome.reports[2].cell_status, (std::vector<int>{3, 6}));
}

TEST(Processes, ALostProcessIsNamedWithItsCells) {
  Processes processes({3, 2}, in_turns(6, 2));
  const ProcessesOutcome outcome = processes.run([&] {
    if (me() == 0) processes.lose(1, "somebody pulled the plug");
    static_cast<void>(receive());
  });
  EXPECT_EQ(outcome.failure(), "ws1 (cells 1, 3, 5) is lost: somebody pulled the plug; the machine stops");
}

TEST(Processes, CollectivesOfEveryKind) {
  for (const std::vector<std::uint32_t>& cells :
       std::vector<std::vector<std::uint32_t>>{{3, 3}, {1, 2, 3}, {2, 1, 1, 1, 1}}) {
    Processes processes({3, 2}, cells, 2);
    expect_well(processes.run([] {
      const auto n = static_cast<int>(this_machine::cell_count());
      const auto mine = static_cast<std::int32_t>(me());
      for (int round = 0; round < 10; ++round) {
        EXPECT_EQ(barrier(false), false);
        EXPECT_EQ(barrier(mine == round % n), true);
        EXPECT_EQ(reduce_sum(mine + round), n * (n - 1) / 2 + n * round);
        EXPECT_EQ(reduce_max(mine), n - 1);
        const Located<double> least = reduce(ReduceOp::min, Located<double>{-1.0 * (mine % 3), mine});
        EXPECT_EQ(least.value, -2.0);
        EXPECT_EQ(least.location, 2);
        EXPECT_EQ(reduce_sum(1, Scope::row), 3);
        EXPECT_EQ(reduce_sum(1, Scope::column), 2);
        for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{20'000}}) {
          for (std::uint32_t root = 0; root < static_cast<std::uint32_t>(n); ++root) {
            std::vector<std::uint32_t> bytes(size, me() == root ? root + 100 : 0);
            broadcast(cell(root), std::as_writable_bytes(std::span(bytes)));
            ASSERT_TRUE(bytes == std::vector<std::uint32_t>(size, root + 100)) << size << " words of " << root;
          }
        }
        std::uint32_t word = this_cell::y() == 1 ? 7 + this_cell::x() : 0;
        broadcast(cell(3 + this_cell::x()), std::as_writable_bytes(std::span(&word, 1)), Scope::column);
        EXPECT_EQ(word, 7 + this_cell::x());
      }
    }));
  }
}

TEST(Processes, DisagreementNamesBoth) {
  Processes processes({2, 1}, {1, 1});
  const ProcessesOutcome outcome = processes.run([] {
    if (me() == 0) {
      barrier();
    } else {
      static_cast<void>(reduce_sum(1.0));
    }
  });
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.failure().find("cell 0 calls barrier"), std::string::npos) << outcome.failure();
  EXPECT_NE(outcome.failure().find("sum of double"), std::string::npos) << outcome.failure();
}

TEST(Processes, StatusWordsPostedBeforeABarrierAreSeenAfterIt) {
  Processes processes({5, 1}, {2, 1, 2}, 1);
  expect_well(processes.run([] {
    for (int round = 1; round < 50; ++round) {
      status::post(me() == static_cast<std::uint32_t>(round) % 5 ? round : 0);
      barrier();
      EXPECT_EQ(status::combined(), round);
      barrier();
    }
  }));
}

TEST(Processes, TheFailureOfOneEndsAll) {
  Processes processes({4, 1}, {2, 2});
  const ProcessesOutcome outcome = processes.run([] {
    if (me() == 3) throw std::runtime_error("the disk is full");
    static_cast<void>(receive());
  });
  EXPECT_EQ(outcome.status, 1);
  ASSERT_EQ(outcome.failures.size(), 1U);
  EXPECT_NE(outcome.failure().find("ws1: cell 3 task 0"), std::string::npos) << outcome.failure();
  EXPECT_NE(outcome.failure().find("the disk is full"), std::string::npos);
}

TEST(Processes, ReceiveFromACellThatHasEndedIsToldElsewhere) {
  Processes processes({3, 1}, {1, 1, 1});
  const ProcessesOutcome outcome = processes.run([] {
    if (me() == 0) send(cell(1), 5);
    if (me() == 1) {
      EXPECT_EQ(receive({.cell = cell(0)}).as<int>(), 5);  // what was sent before the end arrives before it
      static_cast<void>(receive({.cell = cell(0)}));
    }
    if (me() == 2) static_cast<void>(receive({.cell = cell(0)}));  // no frame ever goes between these two
  });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.failure().find("cell 0 has ended"), std::string::npos) << outcome.failure();
}

TEST(Processes, DeadlockOverSeveralIsReported) {
  Processes processes({4, 1}, {2, 2});
  const ProcessesOutcome outcome = processes.run([] {
    send(cell(me() ^ 2U), 1);
    static_cast<void>(receive({.type = 5}));
  });
  EXPECT_EQ(outcome.status, static_cast<int>(ExitStatus::deadlock));
  ASSERT_EQ(outcome.failures.size(), 1U);
  for (const char* process :
       {"deadlock", "on ws0:", "on ws1:", "cell 0 task 0: waits in receive", "cell 3 task 0", "type 5"})
    EXPECT_NE(outcome.failure().find(process), std::string::npos) << process << "\n" << outcome.failure();
}

TEST(Processes, ADeadlockInWhichACellHasFailedHasItsStatus) {
  for (const bool sends : {false, true}) {  // who has sent to all tells them itself that it ends
    Processes processes({3, 1}, {1, 1, 1});
    const ProcessesOutcome outcome = processes.run([sends] {
      if (me() == 1) {
        for (const std::uint32_t to : {0U, 2U}) {
          if (sends) send(cell(to), 1);
        }
        this_task::exit(3);
      }
      if (sends) static_cast<void>(receive({.cell = cell(1)}));
      static_cast<void>(receive({.type = 5}));
    });
    EXPECT_EQ(outcome.status, 3) << sends;
    EXPECT_TRUE(outcome.failure().starts_with("cell 1 failed first, with status 3: deadlock: ")) << outcome.failure();
  }
}

TEST(Processes, NoDeadlockWhileSomeoneSleepsOrFramesAreSlow) {
  using namespace std::chrono_literals;
  Processes processes({3, 1}, {1, 1, 1}, 1, {.delay_time_max = 60ms});
  expect_well(processes.run([] {
    for (int round = 0; round < 3; ++round) {
      if (me() == 0) {
        this_task::sleep_for(50ms);
        send(cell(1), round);
      }
      if (me() == 1) send(cell(2), receive({.cell = cell(0)}).as<int>());
      if (me() == 2) {
        EXPECT_EQ(receive().as<int>(), round);
      }
      barrier();
    }
  }));
}

TEST(Processes, HostProgramStartsCellsEverywhereAndTalksToThem) {
  Processes processes({2, 2}, {1, 3});
  const auto program = [] {
    const int number = receive({.cell = this_machine::host_cell()}).as<int>();
    send(this_machine::host_cell(), number + static_cast<int>(me()));
    barrier();
  };
  expect_well(processes.run_host(program, [&] {
    this_machine::start_cells(program);
    for (std::uint32_t c = 0; c < 4; ++c) send(cell(c), 100);
    int sum = 0;
    for (int i = 0; i < 4; ++i) sum += receive().as<int>();
    EXPECT_EQ(sum, 406);
    this_machine::wait_cells();
    return 0;
  }));
}

TEST(Processes, HostProgramChoosesAnotherGrid) {
  Processes processes({2, 2}, {1, 3});
  std::atomic<int> ran{0};
  const auto program = [&] {
    EXPECT_EQ(this_machine::cell_count(), 8U);
    EXPECT_EQ(reduce_sum(1), 8);
    ++ran;
  };
  expect_well(processes.run_host(program, [&] {
    this_machine::configure({4, 2});
    this_machine::start_cells(program);
    this_machine::wait_cells();
    return 0;
  }));
  EXPECT_EQ(ran.load(), 8);
}

TEST(Processes, HostProgramThatStartsNothingEndsTheRun) {
  Processes processes({2, 1}, {1, 1});
  const ProcessesOutcome outcome = processes.run_host([] {}, [] { return 3; });
  EXPECT_EQ(outcome.failure(), "");
  EXPECT_EQ(outcome.reports[0].exit_status, 3);
}

// Cell 1, in another process, may be through with its first task before it hears of the second.
TEST(Processes, ACellWithoutATaskIsIdleWhileTheHostMayStartOneThere) {
  for (int run = 0; run < 40; ++run) {
    Processes processes({2, 1}, {1, 1});
    std::atomic<int> received{0};
    const auto program = [&] {
      if (index(this_task::id()) == 1) {
        send(cell(1 - me()), static_cast<int>(me()), {.task = TaskId{0}, .type = 3});
        return;
      }
      if (me() == 1) return;
      EXPECT_EQ(receive({.cell = cell(1), .task = TaskId{1}, .type = 3}).as<int>(), 1);
      ++received;
    };
    const ProcessesOutcome outcome = processes.run_host(program, [&] {
      this_machine::start_cells(program);
      this_task::sleep_for(std::chrono::milliseconds(run % 4));  // early or late
      this_machine::start_cells(program, TaskId{1});
      this_machine::wait_cells();
      return 0;
    });
    ASSERT_EQ(outcome.failure(), "") << run;
    ASSERT_EQ(outcome.status, 0) << run;
    ASSERT_EQ(received.load(), 1) << run;
  }
}

TEST(Processes, IdleCellsHaveEndedWhenTheHostProgramHas) {
  Processes processes({3, 1}, {1, 1, 1});
  const auto program = [] {
    if (me() == 1) return;
    if (me() == 2) {
      send(this_machine::host_cell(), 1);
      static_cast<void>(receive({.cell = cell(1)}));
    }
  };
  const ProcessesOutcome outcome = processes.run_host(program, [&] {
    this_machine::start_cells(program);
    static_cast<void>(receive());
    return 0;
  });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.failure().find("cell 2 task 0: receive: cell 1 has ended"), std::string::npos) << outcome.failure();
}

TEST(Processes, HostProgramsStatusIsTheRunsThoughCellsStillWait) {
  Processes processes({2, 1}, {1, 1});
  const auto program = [] { static_cast<void>(receive()); };
  const ProcessesOutcome outcome = processes.run_host(program, [&] {
    this_machine::start_cells(program);
    return 3;
  });
  EXPECT_EQ(outcome.failure(), "");
  EXPECT_EQ(outcome.status, 3);
}

TEST(Processes, HostProgramsEndEndsCellsThatOnlyWait) {
  Processes processes({2, 1}, {1, 1});
  const auto program = [] { static_cast<void>(receive()); };
  const ProcessesOutcome outcome = processes.run_host(program, [&] {
    this_machine::start_cells(program);
    return 0;
  });
  EXPECT_EQ(outcome.failure(), "");
  EXPECT_EQ(outcome.status, 0);
}

TEST(Processes, FurtherProgramIsStartedWhileOneRuns) {
  Processes processes({2, 1}, {1, 1});
  std::atomic<int> tasks{0};
  std::atomic<bool> asked{false};
  expect_well(processes.run([&] {
    ++tasks;
    if (index(this_task::id()) == 0) {
      if (!asked.exchange(true)) processes.start_program(9);
      EXPECT_EQ(receive({.type = 4}).as<int>(), 9);
    } else {
      send(this_cell::id(), static_cast<int>(index(this_task::id())), {.type = 4});
    }
  }));
  EXPECT_EQ(tasks.load(), 4);
}

TEST(Processes, TasksAreListedWhileTheyRun) {
  using namespace std::chrono_literals;
  Processes processes({2, 1}, {1, 1});
  std::string list;
  expect_well(processes.run([&] {
    if (me() == 0) {
      std::atomic<bool> answered{false};
      std::thread asks([&] {
        do {
          list = processes.ask_tasks();
        } while (list.find("cell 1 task 0: waits in receive") == std::string::npos);  // it soon waits there
        answered = true;
      });
      while (!answered) this_task::sleep_for(1ms);
      asks.join();
      send(cell(1), 1);
    } else {
      static_cast<void>(receive({.type = 0}));
    }
  }));
  EXPECT_NE(list.find("cell 1 task 0: waits in receive"), std::string::npos) << list;
  EXPECT_NE(list.find("ws0:"), std::string::npos) << list;
}

TEST(Processes, DeathOfAPartEndsTheOthers) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{400'000}}) {
    Processes processes({4, 1}, {2, 2}, 1, {.piece_bytes_max = 1000, .capacity_bytes = 4096});
    std::atomic<bool> once{false};
    const ProcessesOutcome outcome = processes.run([&] {
      std::vector<std::byte> body(bytes);
      for (int i = 0;; ++i) {
        send(cell(me() ^ 2U), std::span<const std::byte>(body));
        receive_into(body, {.cell = cell(me() ^ 2U)});
        if (me() == 0 && i == 3 && !once.exchange(true)) processes.lose(1, "its process was killed by signal 9");
      }
    });
    ASSERT_EQ(outcome.failures.size(), 1U);
    EXPECT_NE(outcome.failure().find("ws1 (cells 2-3) is lost: "), std::string::npos) << outcome.failure();
    EXPECT_EQ(outcome.status, static_cast<int>(ExitStatus::peer_lost));
  }
}

/// Tells of the first large body and of let_go().
class WatchedModule final : public testing_support::ModuleAround {
 public:
  using ModuleAround::ModuleAround;

  std::function<void(std::byte* into)> on_large_begin;
  std::function<void()> on_let_go;

  void let_go() noexcept override { on_let_go(); }

 private:
  std::byte* large_begin(comm::Peer from, const comm::Label& label, std::size_t bytes) override {
    std::byte* const into = ModuleAround::large_begin(from, label, bytes);
    on_large_begin(into);
    return into;
  }
};

/// A machine that stops in the middle of a large body. Whether the body went into the task's own buffer.
bool stop_in_a_large_body() {
  Processes processes({2, 1}, {1, 1}, 1, {.piece_bytes_max = 1000, .capacity_bytes = 4096});
  std::vector<std::byte> data(400'000);
  std::atomic<bool> lent{false};
  std::atomic<bool> unwound{false};
  std::atomic<bool> let_go{false};
  auto watched = std::make_unique<WatchedModule>(processes.net.module(0));
  watched->on_large_begin = [&](const std::byte* into) {
    lent = into == data.data();
    processes.lose(1, "somebody pulled the plug");
  };
  watched->on_let_go = [&] {
    EXPECT_FALSE(lent && unwound) << "the buffer is the task's again, and the module still has it";
    let_go = true;
  };
  processes.modules.push_back(std::move(watched));
  processes.modules.push_back(processes.net.module(1));
  const ProcessesOutcome outcome = processes.run([&] {
    if (me() == 1) {
      static_cast<void>(receive({.type = 1}));  // the other waits
      send(cell(0), std::vector<std::byte>(data.size()), {.type = 2});
      static_cast<void>(receive());
      return;
    }
    struct Unwound {
      std::atomic<bool>& flag;
      ~Unwound() { flag = true; }
    };
    const Unwound at_end{unwound};
    spawn([] { send(cell(1), 0, {.type = 1}); }).detach();  // runs when this task waits
    receive_into(data, {.type = 2});
    lent = false;  // the body was faster than the news of the loss
  });
  EXPECT_TRUE(let_go && unwound);
  EXPECT_EQ(outcome.status, static_cast<int>(ExitStatus::peer_lost));
  return lent;
}

TEST(Processes, AModuleLetsGoOfABufferBeforeItsTaskUnwinds) {
  int tries = 20;  // The body may be complete before the machine stops.
  while (!stop_in_a_large_body() && --tries != 0) {
  }
  EXPECT_NE(tries, 0);
}

TEST(Processes, ReceiverThatTakesNothingIsNamedAtTheLimit) {
  Processes processes({2, 1}, {1, 1}, 1, {.capacity_bytes = 4096});
  processes.options.set("send-limit", "1m");
  processes.options.set("unread-limit", "1m");
  processes.options.set("send-wait", "200ms");
  const ProcessesOutcome outcome = processes.run([] {
    if (me() == 0) {
      const std::vector<std::byte> body(1000);
      while (true) send(cell(1), std::span<const std::byte>(body));
    }
    static_cast<void>(receive({.type = 1}));
  });
  EXPECT_EQ(outcome.status, 1);
  ASSERT_EQ(outcome.failures.size(), 1U);
  const std::string text = outcome.failure();
  EXPECT_TRUE(text.find("send-limit") != std::string::npos || text.find("unread-limit") != std::string::npos) << text;
}

TEST(Processes, MessagesThatNobodyReceivesEndTheRunAtTheLimit) {
  Processes processes({2, 1}, {1, 1});
  processes.options.set("unread-limit", "1m");
  processes.options.set("send-wait", "200ms");
  const ProcessesOutcome outcome = processes.run([] {
    const std::vector<std::byte> body(1000);
    for (int i = 0; i < 4000 && me() == 0; ++i) send(cell(1), std::span<const std::byte>(body));
    static_cast<void>(receive({.type = 1}));
  });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.failure().find("unread-limit"), std::string::npos) << outcome.failure();
}

TEST(Processes, SlowReceiverLosesNothing) {
  using namespace std::chrono_literals;
  Processes processes({2, 1}, {1, 1}, 1, {.capacity_bytes = 4096});
  processes.options.set("send-limit", "1m");
  processes.options.set("unread-limit", "1m");
  constexpr int count = 5000;
  expect_well(processes.run([] {
    std::vector<int> body(300);
    for (int i = 0; i < count; ++i) {
      if (me() == 0) {
        body[0] = i;
        send(cell(1), std::as_bytes(std::span<const int>(body)));
      } else {
        if (i % 1000 == 0) this_task::sleep_for(20ms);
        receive_into(std::as_writable_bytes(std::span(body)));
        ASSERT_EQ(body[0], i);
      }
    }
  }));
}

TEST(Processes, WhoWaitsAtTheSendLimitLeavesTheThreadToOthers) {
  using namespace std::chrono_literals;
  Processes processes({3, 1}, {2, 1}, 1, {.capacity_bytes = 4096});
  processes.options.set("send-limit", "1m");
  processes.options.set("unread-limit", "1m");
  processes.options.set("send-wait", "100s");
  constexpr int messages = 8000;
  constexpr int rounds = 5000;
  const auto sleeps_of_this_thread = [] {
    rusage usage{};
    EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
  };
  std::atomic<bool> go{false};
  long sleeps = 0;
  expect_well(processes.run([&] {
    const std::vector<std::byte> body(1000);
    if (me() == 0) {
      for (int i = 0; i < messages; ++i) send(cell(2), std::span<const std::byte>(body));
    } else if (me() == 1) {  // runs when cell 0 waits for room
      const long before = sleeps_of_this_thread();
      for (int i = 0; i < rounds; ++i) this_task::yield();
      sleeps = sleeps_of_this_thread() - before;
      go = true;
    } else {
      while (!go) this_task::sleep_for(1ms);
      for (int i = 0; i < messages; ++i) static_cast<void>(receive());
    }
  }));
  EXPECT_LT(sleeps, rounds / 2) << "cell 0 waits on the thread in each round";
}

TEST(Processes, StatusWordsPostedInALoopAreFewNotes) {
  Processes processes({3, 1}, {1, 1, 1});
  constexpr int posts = 200'000;
  expect_well(processes.run([] {
    if (me() == 0) {
      for (int i = 1; i <= posts; ++i) status::post(i % 2 == 0 ? 0x10 : 0x20);
      status::post(0x1234);
    }
    while (status::combined() != 0x1234) this_task::yield();  // the last word arrives without a further call
  }));
  EXPECT_LT(processes.notes_sent(NoteKind::status), posts / 4);
}

TEST(Processes, TheLastStatusWordIsKnownWhenItsCellHasEnded) {
  Processes processes({2, 1}, {1, 1});
  expect_well(processes.run([] {
    if (me() == 0) {
      for (int i = 0; i < 1000; ++i) status::post(i % 2);
      status::post(0x42);
      return;
    }
    EXPECT_THROW(static_cast<void>(receive({.cell = cell(0)})), Error);
    while (status::combined() != 0x42) this_task::yield();
  }));
}

}  // namespace
}  // namespace aplib
