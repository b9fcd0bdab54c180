// SPDX-License-Identifier: MIT
// get: cell 0 gets while cell 1 waits, as in the peers' programs. "fresh": cell 1 has just written the data, so cache
// lines must cross. Also streams and remote atomics.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "buffer.hpp"
#include "shared.hpp"

namespace apbench {
namespace {

constexpr std::uint64_t answer = 0x5a5a5a5a;

double timed(std::uint64_t count, const auto& operation) {
  const std::uint64_t warm = warm_up(count);
  double start = 0;
  for (std::uint64_t i = 0; i < warm + count; ++i) {
    if (i == warm) start = now_seconds();
    operation();
  }
  return now_seconds() - start;
}

double words(aplib::Machine& machine, std::uint64_t count) {
  return with_shared(machine, [count](Shared& shared, bool first) {
    if (!first) shared.word = answer;
    aplib::barrier();
    if (!first) return 0.0;
    return timed(count, [&] {
      if (aplib::get_value(other_cell(), &shared.word) != answer)
        throw std::runtime_error("a get brought another value");
    });
  });
}

double bodies(aplib::Machine& machine, std::size_t bytes, std::uint64_t window, std::uint64_t count) {
  return with_shared(machine, [bytes, window, count](Shared& shared, bool first) {
    if (!first) return 0.0;
    Buffer in(bytes);
    aplib::Flag here;
    std::int32_t awaited = 0;
    return timed(count, [&] {
      for (std::uint64_t j = 0; j < window; ++j)
        aplib::get(other_cell(), in.span(), shared.body.data(), {.arrived = &here});
      aplib::wait_flag(here, awaited += static_cast<std::int32_t>(window));
    });
  });
}

/// A chain through many cache lines, in an order that the hardware cannot predict. Cell 1 writes it anew. Cell 0
/// follows it: each word that it gets holds the place of the next. Only that is timed.
double fresh_words(aplib::Machine& machine, std::uint64_t count) {
  static constexpr std::size_t lines = 1024;
  static constexpr std::size_t words_a_line = Shared::line / sizeof(std::uint64_t);
  std::array<std::uint32_t, lines> order{};
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));  // NOLINT(cert-msc51-cpp): the same in every run
  return with_shared(machine, [&order, count](Shared& shared, bool first) {
    auto* const table = reinterpret_cast<std::uint64_t*>(shared.body.data());
    double seconds = 0;
    std::int32_t round = 0;
    for (std::uint64_t done = 0; done < count + lines; done += lines) {
      ++round;
      const std::uint64_t mark = static_cast<std::uint64_t>(round) << 32;
      if (!first) {
        for (std::size_t i = 0; i < lines; ++i) table[order[i] * words_a_line] = mark | order[(i + 1) % lines];
        aplib::raise_flag(other_cell(), &shared.arrived);
        aplib::wait_flag(shared.arrived, round);
        continue;
      }
      aplib::wait_flag(shared.arrived, round);
      const std::uint64_t wanted = std::min<std::uint64_t>(lines, count + lines - done);
      const double start = now_seconds();
      std::uint64_t place = order[0];
      for (std::uint64_t i = 0; i < wanted; ++i) {
        const std::uint64_t word = aplib::get_value(other_cell(), table + place * words_a_line);
        place = word - mark;
        if (place >= lines) throw std::runtime_error("a get brought an old value");
      }
      if (done >= lines) seconds += now_seconds() - start;  // the first lines warm up
      aplib::raise_flag(other_cell(), &shared.arrived);
    }
    return seconds;
  });
}

double additions(aplib::Machine& machine, bool both, std::uint64_t count) {
  return with_shared(machine, [both, count](Shared& shared, bool first) {
    double seconds = 0;
    if (first || both) {
      seconds = timed(count, [&] { static_cast<void>(aplib::fetch_add(aplib::CellId{1}, &shared.counter, 1)); });
    }
    aplib::barrier();
    if (!first && shared.counter != (both ? 2 : 1) * (warm_up(count) + count))
      throw std::runtime_error("an addition of fetch_add is missing");
    return seconds;
  });
}

}  // namespace

void plan_get(Plan& plan, Machines& machines, const Wishes& wishes) {
  const auto add = [&](const char* name, std::size_t bytes, const char* unit, auto run, auto value) {
    if (wishes.wants(name))
      plan.push_back({.bench = "get", .case_name = name, .bytes = bytes, .unit = unit, .run = run, .value = value});
  };
  for (const std::size_t bytes : one_sided_sizes(wishes)) {
    for (const unsigned threads : {2U, 1U}) {
      add(
          threads == 2 ? "two-processors" : "one-processor", bytes, "ns",
          [&machines, threads, bytes](std::uint64_t n) {
            aplib::Machine& machine = machines.only(2, threads);
            return bytes == sizeof(std::uint64_t) ? words(machine, n) : bodies(machine, bytes, 1, n);
          },
          nanoseconds_per_operation);
    }
    add(
        "stream", bytes, "GB/s",
        [&machines, bytes](std::uint64_t n) { return bodies(machines.only(2, 2), bytes, window_of(bytes), n); },
        gigabytes_per_second(bytes * window_of(bytes)));
  }
  add(
      "two-processors-fresh", 8, "ns", [&machines](std::uint64_t n) { return fresh_words(machines.only(2, 2), n); },
      nanoseconds_per_operation);
  add(
      "fetch-add", 8, "ns", [&machines](std::uint64_t n) { return additions(machines.only(2, 2), false, n); },
      nanoseconds_per_operation);
  add(
      "fetch-add-contended", 8, "ns", [&machines](std::uint64_t n) { return additions(machines.only(2, 2), true, n); },
      nanoseconds_per_operation);
}

}  // namespace apbench
