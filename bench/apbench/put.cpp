// SPDX-License-Identifier: MIT
// put: to visibility, which is half a ping-pong of puts that are awaited by their flags; streams and the rate of small
// puts, with each window acknowledged; and memcpy between the same buffers by the same processor, which a large put
// cannot beat.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "buffer.hpp"
#include "shared.hpp"

namespace apbench {
namespace {

constexpr int fill[2] = {0x5a, 0x3c};  // what cell 0 and cell 1 put
constexpr std::uint64_t rate_window = 1024;

double ping_pongs(aplib::Machine& machine, std::size_t bytes, std::uint64_t count) {
  return with_shared(machine, [bytes, count](Shared& shared, bool first) {
    Buffer out(bytes, fill[first ? 0 : 1]);
    const aplib::CellId peer = other_cell();
    const bool small = bytes <= sizeof shared.word;
    aplib::Flag& arrived = small ? shared.beside_word : shared.arrived;
    std::byte* const there = small ? reinterpret_cast<std::byte*>(&shared.word) : shared.body.data();
    const auto put = [&] { aplib::put(peer, out.span(), there, {.arrived = &arrived}); };
    const auto warm = static_cast<std::int32_t>(warm_up(count));
    const auto last = warm + static_cast<std::int32_t>(count);
    double start = 0;
    for (std::int32_t i = 1; i <= last; ++i) {
      if (first) put();
      aplib::wait_flag(arrived, i);
      if (!first) put();
      if (i == warm) start = now_seconds();
    }
    const double seconds = now_seconds() - start;
    // A fast wrong answer is not a figure.
    const auto wanted = static_cast<std::byte>(fill[first ? 1 : 0]);
    if (bytes > 0 && (there[0] != wanted || there[bytes - 1] != wanted)) {
      throw std::runtime_error(fmt::format("a put of {} bytes arrived with another content", bytes));
    }
    return seconds;
  });
}

/// Windows that only cell 0 sends: `operation(j, whether it is the last of the window)`.
template <class Operation>
double windows(std::uint64_t window, std::uint64_t count, Operation operation) {
  const std::uint64_t warm = std::min<std::uint64_t>(count / 5 + 2, 100);
  double start = 0;
  for (std::uint64_t i = 0; i < warm + count; ++i) {
    if (i == warm) start = now_seconds();
    for (std::uint64_t j = 0; j < window; ++j) operation(j, j + 1 == window);
  }
  return now_seconds() - start;
}

double stream(aplib::Machine& machine, std::size_t bytes, std::uint64_t count) {
  return with_shared(machine, [bytes, count](Shared& shared, bool first) {
    if (!first) return 0.0;
    Buffer out(bytes, fill[0]);
    return windows(window_of(bytes), count, [&](std::uint64_t, bool last) {
      aplib::put(other_cell(), out.span(), shared.body.data(), {.acknowledge = last});
      if (last) aplib::wait_acknowledged();
    });
  });
}

double copies(aplib::Machine& machine, std::size_t bytes, std::uint64_t count) {
  std::byte* there = nullptr;
  return with_shared(machine, [&there, bytes, count](Shared& shared, bool first) {
    if (!first) there = shared.body.data();
    aplib::barrier();
    if (!first) return 0.0;
    Buffer out(bytes, fill[0]);
    return windows(window_of(bytes), count, [&](std::uint64_t, bool) {
      std::memcpy(there, out.data(), bytes);
      asm volatile("" : : "r"(there) : "memory");  // keeps the optimizer from merging two copies of the same bytes
    });
  });
}

double small_puts(aplib::Machine& machine, std::uint64_t count) {
  return with_shared(machine, [count](Shared& shared, bool first) {
    if (!first) return 0.0;
    auto* const words = reinterpret_cast<std::uint64_t*>(shared.body.data());
    return windows(rate_window, count, [&](std::uint64_t j, bool last) {
      aplib::put(other_cell(), j, words + j, {.acknowledge = last});
      if (last) aplib::wait_acknowledged();
    });
  });
}

}  // namespace

std::vector<std::size_t> one_sided_sizes(const Wishes& wishes) {
  for (const std::size_t bytes : wishes.bytes) {
    if (bytes == 0 || bytes > Shared::bytes_max)
      throw std::invalid_argument(
          fmt::format("--bytes: put and get are measured from 1 B to {} MiB", Shared::bytes_max >> 20));
  }
  return wishes.bytes.empty() ? std::vector<std::size_t>{8, 1024, 65536, 1U << 20} : wishes.bytes;
}

void plan_put(Plan& plan, Machines& machines, const Wishes& wishes) {
  const auto add = [&](const char* name, std::size_t bytes, const char* unit, auto run, auto value) {
    if (wishes.wants(name))
      plan.push_back({.bench = "put", .case_name = name, .bytes = bytes, .unit = unit, .run = run, .value = value});
  };
  const auto half = [](double seconds, std::uint64_t n) { return nanoseconds_per_operation(seconds, 2 * n); };
  for (const std::size_t bytes : one_sided_sizes(wishes)) {
    for (const unsigned threads : {2U, 1U}) {
      add(
          threads == 2 ? "two-processors" : "one-processor", bytes, "ns",
          [&machines, threads, bytes](std::uint64_t n) { return ping_pongs(machines.only(2, threads), bytes, n); },
          half);
    }
    const auto speed = gigabytes_per_second(bytes * window_of(bytes));
    add(
        "stream", bytes, "GB/s", [&machines, bytes](std::uint64_t n) { return stream(machines.only(2, 2), bytes, n); },
        speed);
    add(
        "memcpy", bytes, "GB/s", [&machines, bytes](std::uint64_t n) { return copies(machines.only(2, 2), bytes, n); },
        speed);
  }
  add(
      "rate", 8, "M/s", [&machines](std::uint64_t n) { return small_puts(machines.only(2, 2), n); },
      [](double seconds, std::uint64_t n) { return static_cast<double>(n * rate_window) / seconds / 1e6; });
}

}  // namespace apbench
