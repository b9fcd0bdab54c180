// SPDX-License-Identifier: MIT
// bench-fabric PROVIDER CASE [BYTES]: prints one figure of a provider of libfabric between two processes of this
// computer, on a core each, used in the simplest way: the floor of the module rdma.
//   latency       ns one way, half a ping-pong of 8 B: as fi_pingpong
//   write, read   GB/s, windows of remote memory operations: as fi_rma_bw
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "../apbench/measure.hpp"
#include "../module/two_processes.hpp"
#include "endpoint.hpp"

namespace {

using apbench::now_seconds;
using bench_fabric::Endpoint;
using bench_module::Wire;

constexpr double sample_seconds = 0.002;  // short, so that a disturbance is in few samples
constexpr int samples = 25;
constexpr int samples_min = 3;
constexpr double all_samples_seconds = 0.25;  // no more samples after that

struct Work {
  std::string what;
  std::size_t bytes = 0;
  std::uint64_t window = 1;
};

void meet(Endpoint& end) {
  end.send();
  end.await_messages(1);
}

double perform(Endpoint& end, const Work& work, bool near, std::uint64_t count) {
  const std::uint64_t warm = std::min<std::uint64_t>(count / 5 + 1, 1000);
  meet(end);
  double start = now_seconds();
  for (std::uint64_t i = 1; i <= warm + count; ++i) {
    if (work.what == "latency") {
      if (near) end.send();
      end.await_messages(1);
      if (!near) end.send();
    } else if (near) {
      for (std::uint64_t j = 0; j < work.window; ++j)
        work.what == "write" ? end.write(work.bytes) : end.read(work.bytes);
      end.await_transfers(work.window);
    }
    if (i == warm) start = now_seconds();
  }
  const double seconds = now_seconds() - start;
  meet(end);  // the far one has polled until now, so that the near one's operations progress
  return seconds;
}

double timed(Endpoint& end, const Wire& wire, const Work& work, std::uint64_t count) {
  wire.tell(count);
  return count == 0 ? 0 : perform(end, work, true, count);
}

double near_process(const std::string& provider, const Wire& wire, const Work& work) {
  Endpoint end(provider, wire);
  std::uint64_t count = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double wanted = static_cast<double>(count) * sample_seconds / std::max(timed(end, wire, work, count), 1e-9);
    const auto next = static_cast<std::uint64_t>(std::clamp(wanted, 1.0, 1e7));
    if (next <= count) {
      count = next;
      break;
    }
    count = std::min<std::uint64_t>(next, count * 200);
  }
  std::vector<double> values;
  const double begun = now_seconds();
  for (int i = 0; i < samples && (i < samples_min || now_seconds() - begun < all_samples_seconds); ++i)
    values.push_back(timed(end, wire, work, count) / static_cast<double>(count));
  timed(end, wire, work, 0);
  return apbench::summarize(values).median;
}

void far_process(const std::string& provider, const Wire& wire, const Work& work) {
  Endpoint end(provider, wire);
  for (auto count = wire.hear<std::uint64_t>(); count != 0; count = wire.hear<std::uint64_t>())
    perform(end, work, false, count);
}

int run(int argc, char** argv) {
  Work work{.what = argc > 2 ? argv[2] : "", .bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1U << 20};
  const bool known = work.what == "latency" || work.what == "write" || work.what == "read";
  if (!known || work.bytes == 0 || work.bytes > Endpoint::arena_bytes) {
    fmt::print(stderr, "usage: bench-fabric PROVIDER latency|write|read [BYTES, at most 16 Mi]\n");
    return 2;
  }
  if (work.what != "latency") work.window = std::clamp<std::uint64_t>(Endpoint::arena_bytes / work.bytes, 1, 64);
  const std::string provider = argv[1];
  const double seconds =
      bench_module::on_two_processes([&](const Wire& wire) { return near_process(provider, wire, work); },
                                     [&](const Wire& wire) { far_process(provider, wire, work); });
  if (work.what == "latency") {
    fmt::print("{:.3f}\n", seconds * 1e9 / 2);
  } else {
    fmt::print("{:.4f}\n", static_cast<double>(work.bytes * work.window) / seconds / 1e9);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-fabric: {}\n", error.what());
    return 1;
  }
}
