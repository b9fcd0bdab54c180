// SPDX-License-Identifier: MIT
// A program with a farm in a pool, for pool_farm_test.py:
//
//   farm-pool-program POOL WORKERS squares     sums squares, and prints who has computed them
//   farm-pool-program POOL WORKERS deaths      a task that kills its worker each time, among others
//   farm-pool-program POOL WORKERS hang        a task that hangs and has a timeout, and one that hangs without
//   farm-pool-program POOL WORKERS slow        "begun", and tasks that take a while
//   farm-pool-program POOL WORKERS rests       40 tasks that print without a newline
//
// With the variable OTHER_BUILD, which reaches only what is started here, it is another program than its workers.
#include <unistd.h>
#include <aplib/farm.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

using aplib::farm::Farm;
using aplib::farm::Where;

namespace {

std::uint64_t sum_of_squares(Farm& farm) {
  std::uint64_t sum = 0;
  std::vector<aplib::farm::Future<std::uint64_t>> squares;
  for (std::uint64_t i = 0; i < 1000; ++i) squares.push_back(farm.submit([](std::uint64_t n) { return n * n; }, i));
  for (const auto& each : squares) sum += each.get();
  return sum;
}

void deaths(Farm& farm) {
  const auto deadly = farm.submit([] { ::kill(::getpid(), SIGKILL); });
  std::printf("%llu\n", static_cast<unsigned long long>(sum_of_squares(farm)));
  try {
    deadly.get();
  } catch (const aplib::farm::TaskError& error) {
    std::printf("given up: %d\n", error.outcome() == aplib::farm::Outcome::crashed);
  }
}

void hang(Farm& farm) {
  const auto for_ever = [] {
    for (;;) ::pause();
  };
  static_cast<void>(farm.submit(for_ever));
  try {
    farm.submit({.timeout = std::chrono::milliseconds(200)}, for_ever).get();
  } catch (const aplib::farm::TaskError& error) {
    std::printf("ran too long: %d\n", error.outcome() == aplib::farm::Outcome::timed_out);
  }
  std::printf("%llu\n", static_cast<unsigned long long>(sum_of_squares(farm)));
}

void squares(Farm& farm) {
  std::printf("%llu\n", static_cast<unsigned long long>(sum_of_squares(farm)));
  std::vector<aplib::farm::Future<int>> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(farm.submit([] {
      std::puts("printed in a task");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return static_cast<int>(::getpid());
    }));
  }
  std::set<int> who;
  for (const auto& each : all) who.insert(each.get());
  std::printf("%d processes, %d of them this one\n", static_cast<int>(who.size() > 1),
              static_cast<int>(who.count(::getpid())));
}

void slow(Farm& farm) {
  std::vector<aplib::farm::Future<int>> all;
  for (int i = 0; i < 200; ++i) {
    all.push_back(farm.submit(
        [](int n) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          return n;
        },
        i));
  }
  all.front().get();
  std::puts("begun");
  std::fflush(stdout);
  int sum = 0;
  for (const auto& each : all) sum += each.get();
  std::printf("%d\n", sum);
}

void rests(Farm& farm) {
  std::vector<aplib::farm::Future<int>> all;
  for (int i = 0; i < 40; ++i)
    all.push_back(farm.submit([](int n) { return std::fputs("<rest>", n % 2 == 0 ? stdout : stderr); }, i));
  for (const auto& each : all) each.get();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::puts("main");  // of a worker, to the standard error
  const std::string what = argv[3];
  if (std::getenv("OTHER_BUILD") != nullptr)
    aplib::farm::detail::register_stub(nullptr, "a function that the workers do not have");
  try {
    Farm farm({.where = Where::pool, .workers = static_cast<unsigned>(std::atoi(argv[2])), .pool = argv[1]});
    std::printf("%u workers\n", farm.workers());
    (what == "squares"  ? squares
     : what == "deaths" ? deaths
     : what == "hang"   ? hang
     : what == "rests"  ? rests
                        : slow)(farm);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "refused: %s\n", error.what());
    return 1;
  }
  return 0;
}
