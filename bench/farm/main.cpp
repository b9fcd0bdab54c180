// SPDX-License-Identifier: MIT
// bench-farm: empty tasks between processes, for bench/farm/compare: by aplib/farm.hpp, and by libgearman, a peer.
//
//   bench-farm aplib WORKERS TASKS TRIPS            prints tasks per second, and the round trip in us
//   bench-farm gearman PORT TASKS TRIPS             the same, with workers that stand
//   bench-farm gearman-worker PORT
#include <libgearman/gearman.h>
#include <aplib/farm.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

namespace {

double seconds_of(const std::function<void()>& what) {
  const auto begun = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

/// All tasks at once; then one after the other, of which the median counts.
void report(int tasks, int trips, const std::function<void(int)>& run_all, const std::function<void()>& run_one) {
  run_all(std::min(tasks, 1000));
  const double rate = tasks / seconds_of([&] { run_all(tasks); });
  std::vector<double> times;
  for (int i = 0; i < trips; ++i) times.push_back(seconds_of(run_one));
  std::ranges::nth_element(times, times.begin() + trips / 2);
  std::printf("%.0f %.2f\n", rate, times[static_cast<std::size_t>(trips / 2)] * 1e6);
}

void run_aplib(unsigned workers, int tasks, int trips) {
  aplib::farm::Farm farm({.where = aplib::farm::Where::processes, .workers = workers});
  const auto next = [](int value) { return value + 1; };
  report(
      tasks, trips,
      [&](int count) {
        std::vector<aplib::farm::Future<int>> all;
        for (int i = 0; i < count; ++i) all.push_back(farm.submit(next, i));
        for (const auto& each : all) static_cast<void>(each.get());
      },
      [&] { static_cast<void>(farm.submit(next, 1).get()); });
}

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "bench-farm: %s: %s\n", what, why);
  std::exit(1);
}

void* next_of(gearman_job_st* job, void* /*context*/, std::size_t* size, gearman_return_t* status) {
  auto* const value = static_cast<std::int32_t*>(std::malloc(sizeof(std::int32_t)));
  *value = *static_cast<const std::int32_t*>(gearman_job_workload(job)) + 1;
  *size = sizeof *value;
  *status = GEARMAN_SUCCESS;
  return value;
}

void work_for_gearman(in_port_t port) {
  gearman_worker_st* const worker = gearman_worker_create(nullptr);
  if (gearman_worker_add_server(worker, "127.0.0.1", port) != GEARMAN_SUCCESS ||
      gearman_worker_add_function(worker, "next", 0, &next_of, nullptr) != GEARMAN_SUCCESS)
    fail("gearman", gearman_worker_error(worker));
  while (gearman_worker_work(worker) == GEARMAN_SUCCESS) {
  }
}

void run_gearman(in_port_t port, int tasks, int trips) {
  gearman_client_st* const client = gearman_client_create(nullptr);
  if (gearman_client_add_server(client, "127.0.0.1", port) != GEARMAN_SUCCESS)
    fail("gearman", gearman_client_error(client));
  const auto check = [&](gearman_return_t status) {
    if (status != GEARMAN_SUCCESS) fail("gearman", gearman_client_error(client));
  };
  const std::int32_t value = 1;
  report(
      tasks, trips,
      [&](int count) {
        constexpr int at_once = 1000;
        for (int done = 0; done < count; done += at_once) {
          for (int i = done; i < std::min(count, done + at_once); ++i) {
            gearman_return_t status = GEARMAN_SUCCESS;
            gearman_client_add_task(client, nullptr, nullptr, "next", nullptr, &value, sizeof value, &status);
            check(status);
          }
          check(gearman_client_run_tasks(client));
          gearman_client_task_free_all(client);
        }
      },
      [&] {
        std::size_t size = 0;
        gearman_return_t status = GEARMAN_SUCCESS;
        std::free(gearman_client_do(client, "next", nullptr, &value, sizeof value, &size, &status));
        check(status);
      });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view kind = argc > 2 ? argv[1] : "";
  const auto number = [&](int i) { return i < argc ? std::atoi(argv[i]) : 0; };
  if (kind == "aplib" && argc == 5)
    run_aplib(static_cast<unsigned>(number(2)), number(3), number(4));
  else if (kind == "gearman" && argc == 5)
    run_gearman(static_cast<in_port_t>(number(2)), number(3), number(4));
  else if (kind == "gearman-worker")
    work_for_gearman(static_cast<in_port_t>(number(2)));
  else
    fail("words", "bench/farm/compare starts this program");
  return 0;
}
