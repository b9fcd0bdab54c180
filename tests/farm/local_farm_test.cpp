// SPDX-License-Identifier: MIT
// Farms on this computer, in threads and in processes.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <aplib/farm.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/farm_tally.hpp"
#include "base/os/own_folder.hpp"

namespace aplib::farm {
namespace {

struct Point {
  double x = 0;
  std::string name;
  std::vector<std::vector<int>> rows;
  std::optional<std::pair<int, std::string>> more;
  bool operator==(const Point&) const = default;

  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.x, self.name, self.rows, self.more);
  }
};

Options in_processes(unsigned workers = 2) { return {.where = Where::processes, .workers = workers}; }

std::string text_of(const auto& future) {
  try {
    static_cast<void>(future.get());
    return "";
  } catch (const TaskError& error) {
    return std::to_string(static_cast<int>(error.outcome())) + ": " + error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
}

class LocalFarm : public testing::TestWithParam<Where> {
 protected:
  Farm farm{{.where = GetParam(), .workers = 2, .tasks_max = 1000}};
};

INSTANTIATE_TEST_SUITE_P(, LocalFarm, testing::Values(Where::threads, Where::processes),
                         [](const auto& info) { return info.param == Where::threads ? "threads" : "processes"; });

TEST_P(LocalFarm, RunsManyMoreTasksThanItHolds) {
  std::vector<Future<std::uint64_t>> all;
  for (std::uint64_t i = 0; i < 20'000; ++i) all.push_back(farm.submit([](std::uint64_t n) { return n * n; }, i));
  for (std::uint64_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i].get(), i * i);
  farm.wait();
}

TEST_P(LocalFarm, CarriesArgumentsAndResultsOfManyTypes) {
  const Point point{2.5, "name", {{1, 2}, {}}, std::pair{7, "x"}};
  const auto doubled = farm.submit(
      [](Point p, int times, const std::string& text) {
        p.x *= times;
        p.name += text;
        return p;
      },
      point, 2, std::string("!"));
  EXPECT_EQ(doubled.get(), (Point{5, "name!", {{1, 2}, {}}, std::pair{7, "x"}}));
  int captured = 40;  // no constant: it is part of the call
  EXPECT_EQ(farm.submit([captured](int n) { return captured + n; }, 2).get(), 42);
  farm.submit([] {}).get();
  EXPECT_EQ(farm.submit([](const std::vector<bool>& v) { return v; }, std::vector<bool>{true, false}).get()[0], true);
}

TEST_P(LocalFarm, ChainsAndJoins) {
  std::vector<Future<int>> parts;
  for (int i = 0; i < 10; ++i)
    parts.push_back(farm.submit([](int n) { return n; }, i).then([](int n) { return n + 1; }));
  const auto sum = when_all(parts).then([](const std::vector<int>& all) {
    int value = 0;
    for (const int each : all) value += each;
    return value;
  });
  EXPECT_EQ(sum.get(), 55);
  const auto fails = farm.submit([]() -> int { throw std::runtime_error("no luck"); });
  const auto behind = fails.then([](int n) { return n; });
  EXPECT_EQ(text_of(when_all(std::vector{parts[0], behind})), text_of(fails));
  EXPECT_EQ(when_all(std::vector<Future<int>>{}).get(), std::vector<int>{});
}

TEST_P(LocalFarm, MapsInOrderInPieces) {
  std::vector<int> values(5000);
  std::iota(values.begin(), values.end(), 0);
  for (const std::size_t chunk : {std::size_t{0}, std::size_t{7}}) {
    const std::vector<double> halves = farm.map(
        values, [](int n) { return n / 2.0; }, chunk);
    ASSERT_EQ(halves.size(), values.size());
    for (std::size_t i = 0; i < halves.size(); ++i) ASSERT_EQ(halves[i], static_cast<double>(i) / 2);
  }
  EXPECT_TRUE(farm.map(std::vector<int>{}, [](int n) { return n; }).empty());
}

TEST_P(LocalFarm, GivesResultsAsTheyCome) {
  std::vector<Future<int>> all;
  all.push_back(farm.submit([] {
    ::usleep(200'000);
    return 0;
  }));
  for (int i = 1; i < 20; ++i) all.push_back(farm.submit([](int n) { return n; }, i));
  std::vector<int> order;
  for (const Future<int>& each : AsCompleted(all)) order.push_back(each.get());
  ASSERT_EQ(order.size(), 20U);
  EXPECT_EQ(order.back(), 0) << "what takes long comes last";
}

TEST_P(LocalFarm, PassesOnWhatTasksThrow) {
  EXPECT_NE(text_of(farm.submit([]() -> int { throw std::runtime_error("no luck"); })).find("no luck"),
            std::string::npos);
  const auto result = farm.submit(TaskOptions{.retries = 2}, []() -> int { throw std::logic_error("always"); });
  EXPECT_NE(text_of(result).find("always"), std::string::npos);
}

TEST_P(LocalFarm, TellsThoseWhoLookOn) {
  const std::string folder = os::registry_folder();
  const std::vector<std::string> names = FarmWatch::find(folder);
  const auto mine = std::ranges::find_if(
      names, [](const std::string& name) { return name.starts_with(std::to_string(::getpid()) + "-"); });
  ASSERT_NE(mine, names.end());
  const FarmWatch watch(folder, *mine);
  for (int i = 0; i < 5; ++i) {
    farm.submit(
        [](int n) {
          if (n > 2) throw std::runtime_error("no luck");
        },
        i);
  }
  std::optional<FarmReport> report;
  do report = watch.read();
  while (!report || report->counts.done != 3 || report->counts.failed != 2 || report->counts.running != 0);
  EXPECT_EQ(report->kind, GetParam() == Where::threads ? "threads" : "processes");
  EXPECT_EQ(report->counts.workers, 2U);
  EXPECT_EQ(report->counts.queued, 0U);
  ASSERT_EQ(report->failures.size(), 2U);
  EXPECT_EQ(report->failures.front().text, "no luck");
}

TEST_P(LocalFarm, RunsTasksByPriority) {
  // One worker's; the first task holds it up until all have been submitted.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Farm held({.where = GetParam(), .workers = 1});
  const auto gate = held.submit([in = ends[0]] {
    char byte = 0;
    return static_cast<int>(::read(in, &byte, 1));
  });
  std::vector<Future<double>> all;
  for (const int priority : {0, 2, 1}) {
    all.push_back(held.submit(TaskOptions{.priority = priority}, [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }));
  }
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_EQ(gate.get(), 1);
  EXPECT_LT(all[1].get(), all[2].get());
  EXPECT_LT(all[2].get(), all[0].get());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_P(LocalFarm, CancelsWhatHasNotEnded) {
  Farm one({.where = GetParam(), .workers = 1});
  const auto runs = one.submit([] { ::usleep(100'000); });
  const auto waits = one.submit([] { return 1; });
  EXPECT_TRUE(waits.cancel());
  EXPECT_FALSE(waits.cancel());
  EXPECT_EQ(text_of(waits), "4: the task was cancelled");
  runs.get();
  EXPECT_FALSE(runs.cancel());
  EXPECT_EQ(one.submit([] { return 2; }).get(), 2);
}

TEST_P(LocalFarm, FuturesOutliveTheirFarm) {
  std::vector<Future<int>> all;
  {
    Farm brief({.where = GetParam(), .workers = 1});
    for (int i = 0; i < 100; ++i) {
      all.push_back(brief.submit(
          [](int n) {
            ::usleep(1000);
            return n;
          },
          i));
    }
  }
  int cancelled = 0;
  for (const auto& each : all) cancelled += each.ready() && text_of(each) == "4: the task was cancelled" ? 1 : 0;
  EXPECT_GT(cancelled, 0);
  EXPECT_FALSE(all[0].cancel());
}

TEST(ThreadFarm, TakesWhatOnlyThisProcessHas) {
  Farm farm({.workers = 2});
  std::atomic<int> sum = 0;
  std::vector<Future<void>> all;
  for (int i = 1; i <= 100; ++i) all.push_back(farm.submit([&sum, own = std::make_shared<int>(i)] { sum += *own; }));
  for (const auto& each : all) each.get();
  EXPECT_EQ(sum, 5050);
}

TEST(ThreadFarm, TasksMaySubmitTasks) {
  Farm farm({.workers = 2, .tasks_max = 10});
  std::atomic<int> count = 0;
  for (int i = 0; i < 50; ++i) {
    farm.submit([&] {
      for (int j = 0; j < 20; ++j) farm.submit([&] { ++count; });
    });
  }
  farm.wait();
  EXPECT_EQ(count, 1000) << "more than the farm holds, without a wait";
}

TEST(ThreadFarm, NothingShortWaitsBehindSomethingLong) {
  Farm farm({.workers = 2});
  for (int i = 0; i < 10'000; ++i) farm.submit([] {});  // it learns that tasks are short
  farm.wait();
  std::atomic<bool> go = false;
  const auto is_long = farm.submit([&] {
    while (!go) std::this_thread::yield();
  });
  std::vector<Future<void>> all;
  for (int i = 0; i < 500; ++i) all.push_back(farm.submit([] {}));
  for (const auto& each : all) each.get();  // hangs, if one is in the basket behind the long one
  EXPECT_FALSE(is_long.ready());
  go = true;
}

TEST(ThreadFarm, AnIdleWorkerIsNeverLeftOut) {
  for (int round = 0; round < 300; ++round) {
    Farm farm({.workers = 2});
    std::atomic<bool> go = false;
    const auto is_long = farm.submit([&] {
      while (!go) std::this_thread::yield();
    });
    std::vector<Future<void>> all;
    for (int i = 0; i < 10; ++i) all.push_back(farm.submit([] {}));
    for (const auto& each : all) each.get();
    go = true;
  }
}

TEST(ThreadFarm, ManyThreadsMaySubmit) {
  Farm farm({.workers = 2, .tasks_max = 100});
  std::atomic<int> count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 2000; ++j) farm.submit([&] { ++count; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  farm.wait();
  EXPECT_EQ(count, 8000);
}

TEST(ProcessFarm, SurvivesTasksThatKillTheirWorkers) {
  Options options = in_processes();
  options.crash_limit = 2;
  Farm farm(options);
  std::vector<Future<int>> all;
  for (int i = 0; i < 2000; ++i) {
    all.push_back(farm.submit(
        [](int n) {
          if (n % 400 == 399) ::raise(SIGKILL);
          return n;
        },
        i));
  }
  for (int i = 0; i < 2000; ++i) {
    if (i % 400 == 399) {
      const std::string text = text_of(all[i]);
      EXPECT_EQ(text.substr(0, 3), "3: ") << text;
      EXPECT_NE(text.find("killed by signal 9"), std::string::npos) << text;
    } else {
      ASSERT_EQ(all[i].get(), i);
    }
  }
}

TEST(ProcessFarm, NoResultWaitsForALongTaskAfterIt) {
  std::string name = (std::filesystem::temp_directory_path() / "aplib-farm-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(name.data());
  const std::string go = folder / "go";
  Options options = in_processes(1);
  options.copies = false;
  for (int round = 0; round < 5; ++round) {
    Farm farm(options);
    // They take long enough to stand in line, so that some of them and the long one go to the worker together.
    const auto submit_short_ones = [&farm] {
      std::vector<Future<void>> all;
      for (int i = 0; i < 2000; ++i) {
        all.push_back(farm.submit([] {
          const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
          while (std::chrono::steady_clock::now() < end) {
          }
        }));
      }
      return all;
    };
    const auto before = submit_short_ones();
    const auto is_long = farm.submit(
        [](const std::string& file) {
          while (!std::filesystem::exists(file)) ::usleep(1000);
        },
        go);
    const auto behind = submit_short_ones();
    for (const auto& each : before) each.get();  // hangs, if one is kept
    EXPECT_FALSE(is_long.ready());
    std::ofstream(go).close();
    is_long.get();
    for (const auto& each : behind) each.get();
    std::filesystem::remove(go);
  }
  std::filesystem::remove_all(folder);
}

TEST(ProcessFarm, EndsWhatRunsTooLong) {
  Options options = in_processes();
  options.timeout = std::chrono::milliseconds(200);
  Farm farm(options);
  const auto hangs = farm.submit([] { ::pause(); });
  std::vector<Future<int>> all;
  for (int i = 0; i < 100; ++i) all.push_back(farm.submit([](int n) { return n; }, i));
  EXPECT_EQ(text_of(hangs).substr(0, 3), "2: ");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(all[i].get(), i);
}

TEST(ProcessFarm, RefusesWhatCannotTravel) {
  Farm farm(in_processes(1));
  const auto owned = std::make_shared<int>(1);
  EXPECT_THROW(farm.submit([owned] { return *owned; }), Error);
  EXPECT_THROW(farm.submit([](const std::shared_ptr<int>& p) { return *p; }, owned), Error);
  EXPECT_EQ(farm.submit([] { return 3; }).get(), 3);
}

TEST(ProcessFarm, LargeArgumentsAndResultsArrive) {
  Options options = in_processes();
  options.bytes_max = 10'000'000;
  Farm farm(options);
  std::vector<Future<std::vector<double>>> all;
  for (int i = 0; i < 30; ++i) {
    all.push_back(farm.submit(
        [](std::vector<double> v) {
          for (double& each : v) each += 1;
          return v;
        },
        std::vector<double>(300'000, i)));
  }
  for (int i = 0; i < 30; ++i) EXPECT_EQ(all[i].get(), std::vector<double>(300'000, i + 1));
}

TEST(ProcessFarm, EveryResultComesOnceWhileWorkersAreKilled) {
  Farm farm(in_processes(3));
  std::vector<Future<std::pair<int, int>>> all;
  for (int i = 0; i < 3000; ++i) {
    all.push_back(farm.submit(
        [](int n) {
          ::usleep(300);
          return std::pair{n, static_cast<int>(::getpid())};
        },
        i));
  }
  std::set<int> processes;
  std::size_t at = 0;
  for (const auto& each : AsCompleted(all)) {
    const auto [n, process] = each.get();
    processes.insert(process);
    if (++at % 300 == 0) ::kill(process, SIGKILL);
  }
  EXPECT_EQ(at, 3000U);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(all[i].get().first, i);
  EXPECT_GT(processes.size(), 5U);
}

TEST(ProcessFarm, LeavesNoProcessBehind) {
  int worker = 0;
  {
    Farm farm(in_processes(2));
    worker = farm.submit([] { return static_cast<int>(::getpid()); }).get();
    farm.submit([] { ::pause(); });
    EXPECT_EQ(::kill(worker, 0), 0);
  }
  EXPECT_NE(::kill(worker, 0), 0);
}

TEST(FarmBytes, RefusesBytesThatAreNoSuchValue) {
  const Point point{1, "name", {{1, 2}, {3}}, std::pair{7, "x"}};
  Bytes bytes;
  BytesWriter out(bytes);
  out(point);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    BytesReader in{std::span<const std::byte>(bytes).first(cut)};
    Point value;
    in(value);
    EXPECT_FALSE(in.ended());
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    Bytes changed = bytes;
    changed[i] = std::byte{0xff};
    BytesReader in(changed);
    Point value;
    in(value);  // without harm, and without much memory
  }
  BytesReader in(bytes);
  Point value;
  in(value);
  EXPECT_TRUE(in.ended());
  EXPECT_EQ(value, point);
}

}  // namespace
}  // namespace aplib::farm
