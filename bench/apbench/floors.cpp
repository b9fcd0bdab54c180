// SPDX-License-Identifier: MIT
// Floors: what this computer can do without any library. They are measured like the rest, so that every figure can be
// compared with one.
#include <fmt/core.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "benches.hpp"
#include "buffer.hpp"

namespace apbench {
namespace {

void bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// Runs both functions at the same time, on a core each.
template <class First, class Second>
void run_pair(First first, Second second) {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) {
    throw std::runtime_error(
        "floors: two usable cores are needed and this process has one (see taskset); leave it out with --case");
  }
  std::thread a([&] { bind_to(cores[0]), first(); });
  std::thread b([&] { bind_to(cores[1]), second(); });
  a.join();
  b.join();
}

// Tells the processor that this is a waiting loop.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <bool pause>
void wait_for(const std::atomic<std::uint64_t>& word, std::uint64_t value) {
  while (word.load(std::memory_order_acquire) != value) {  // acquire: also see what the other side wrote before
    if constexpr (pause) relax();
  }
}

// Each word has its own cache line, and the neighbour that the hardware may fetch with it.
struct Words {
  alignas(128) std::atomic<std::uint64_t> there{0};
  alignas(128) std::atomic<std::uint64_t> back{0};
};

// A page that holds nothing else, each at another place of it.
struct Page {
  std::array<Words, 16> places;
};

// Sends a word there and back `count` times. How long a line takes depends on the part of the shared cache that its
// physical address belongs to, so lines of many pages take turns.
template <bool pause>
double line_ping_pongs(std::uint64_t count) {
  std::vector<Page> pages(64);
  const auto words_of = [&](std::uint64_t i) -> Words& {
    Page& page = pages[i % pages.size()];
    return page.places[i % pages.size() % page.places.size()];
  };
  const std::uint64_t warm = std::min<std::uint64_t>(count / 5 + 4, 10'000);
  double seconds = 0;
  run_pair(
      [&] {
        double start = now_seconds();
        for (std::uint64_t i = 1; i <= warm + count; ++i) {
          Words& words = words_of(i);
          words.there.store(i, std::memory_order_release);
          wait_for<pause>(words.back, i);
          if (i == warm) start = now_seconds();
        }
        seconds = now_seconds() - start;
      },
      [&] {
        for (std::uint64_t i = 1; i <= warm + count; ++i) {
          Words& words = words_of(i);
          wait_for<pause>(words.there, i);
          words.back.store(i, std::memory_order_release);
        }
      });
  return seconds;
}

// Keeps the optimizer from merging two copies of the same bytes.
void keep(const std::byte* p) { asm volatile("" : : "r"(p) : "memory"); }

// Copies `count` times. How fast a copy is depends on the parts of the cache that its physical pages share. Copies of
// up to 1 MiB therefore use several buffers, one after another.
double copies(std::size_t bytes, std::uint64_t count) {
  constexpr std::size_t places_max = 16;
  const std::size_t places =
      std::clamp<std::size_t>((places_max << 20) / std::max<std::size_t>(bytes, 1), 1, places_max);
  double seconds = 0;
  std::thread([&] {
    bind_to(usable_cores().front());
    std::vector<std::pair<Buffer, Buffer>> buffers;
    for (std::size_t i = 0; i < places; ++i) buffers.emplace_back(Buffer(bytes, 1), Buffer(bytes, 2));
    for (std::size_t i = 0; i < places; ++i) {
      const std::byte* const from = buffers[i].first.data();
      std::byte* const to = buffers[i].second.data();
      const auto copy = [&](std::uint64_t times) {
        for (std::uint64_t n = 0; n < times; ++n) {
          std::memcpy(to, from, bytes);
          keep(to);
        }
      };
      const std::uint64_t share = count / places + (i < count % places ? 1 : 0);
      copy(share / 5 + 1);
      const double start = now_seconds();
      copy(share);
      seconds += now_seconds() - start;
    }
  }).join();
  return seconds;
}

// Two cores copy one half each, and meet after every copy.
double shared_copies(std::size_t bytes, std::uint64_t count) {
  Buffer from(bytes, 1);
  Buffer to(bytes, 2);
  Words words;
  const std::size_t half = bytes / 2;
  const std::uint64_t warm = count / 5 + 1;
  double seconds = 0;
  run_pair(
      [&] {
        double start = now_seconds();
        for (std::uint64_t i = 1; i <= warm + count; ++i) {
          words.there.store(i, std::memory_order_release);
          std::memcpy(to.data(), from.data(), half);
          keep(to.data());
          wait_for<false>(words.back, i);
          if (i == warm) start = now_seconds();
        }
        seconds = now_seconds() - start;
      },
      [&] {
        for (std::uint64_t i = 1; i <= warm + count; ++i) {
          wait_for<false>(words.there, i);
          std::memcpy(to.data() + half, from.data() + half, bytes - half);
          keep(to.data());
          words.back.store(i, std::memory_order_release);
        }
      });
  return seconds;
}

namespace context = boost::context::detail;

void jump_back_for_ever(context::transfer_t transfer) {
  for (;;) transfer = context::jump_fcontext(transfer.fctx, transfer.data);
}

// Seconds of `count` switches there and `count` back.
double switches(std::uint64_t count) {
  double seconds = 0;
  std::thread([&] {
    bind_to(usable_cores().front());
    Buffer stack(std::size_t{64} * 1024);
    context::transfer_t there{context::make_fcontext(stack.data() + stack.size(), stack.size(), jump_back_for_ever),
                              nullptr};
    const auto jump = [&there](std::uint64_t times) {
      for (std::uint64_t i = 0; i < times; ++i) there = context::jump_fcontext(there.fctx, nullptr);
    };
    jump(count / 5 + 4);
    const double start = now_seconds();
    jump(count);
    seconds = now_seconds() - start;
  }).join();
  return seconds;
}

}  // namespace

void plan_floors(Plan& plan, Machines&, const Wishes& wishes) {
  const auto half_a_round_trip = [](double seconds, std::uint64_t n) {
    return nanoseconds_per_operation(seconds, 2 * n);
  };
  const auto add = [&](const char* name, std::size_t bytes, const char* unit, std::function<double(std::uint64_t)> run,
                       std::function<double(double, std::uint64_t)> value) {
    if (!wishes.wants(name)) return;
    plan.push_back({.bench = "floors",
                    .case_name = name,
                    .bytes = bytes,
                    .unit = unit,
                    .run = std::move(run),
                    .value = std::move(value)});
  };
  add("cache-line", 8, "ns", line_ping_pongs<false>, half_a_round_trip);
  add("cache-line-pause", 8, "ns", line_ping_pongs<true>, half_a_round_trip);
  add("context-switch", 0, "ns", switches, half_a_round_trip);
  const std::vector<std::size_t> usual{1024, 8192, 65536, 1U << 20, 4U << 20};
  for (const std::size_t bytes : wishes.bytes.empty() ? usual : wishes.bytes) {
    if (bytes == 0) continue;
    add(
        "memcpy", bytes, "GB/s", [bytes](std::uint64_t n) { return copies(bytes, n); }, gigabytes_per_second(bytes));
    add(
        "memcpy-both-sides", bytes, "GB/s", [bytes](std::uint64_t n) { return shared_copies(bytes, n); },
        gigabytes_per_second(bytes));
  }
}

}  // namespace apbench
