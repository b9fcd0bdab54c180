// SPDX-License-Identifier: MIT
// bench-puts WHAT [BYTES]: a program for a machine of two processes with a cell each that prints one figure of put, get
// or remote atomics between them. apbench's `module` runs it.
//   put          ns to visibility, half a ping-pong of puts that are awaited by their flags
//   put-stream   GB/s, windows of puts, each acknowledged
//   get          ns until the data has arrived
//   get-stream   GB/s, windows of gets
//   fetch-add    ns until the old value has arrived
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"

namespace {

constexpr double sample_seconds = 0.002;  // short, so that a disturbance is in few samples
constexpr int samples = 25;
constexpr int samples_min = 3;
constexpr double all_samples_seconds = 0.25;  // no more samples after that
constexpr std::size_t bytes_max = 4U << 20;
constexpr std::uint64_t warm_windows_max = 100;

// Each cell has its own, at the same place in its slot: in the heap, as the peers' windows are memory of their
// libraries.
struct Remote {
  Remote() noexcept {}  // not defaulted: the body is not cleared
  alignas(4096) std::array<std::byte, bytes_max> body;
  alignas(64) aplib::Flag arrived;
  alignas(64) std::uint64_t counter = 0;
};
Remote* remote;
// The source of puts and the destination of gets.
alignas(4096) std::array<std::byte, bytes_max> local;

struct Work {
  std::string what;
  std::size_t bytes = 0;
  std::uint64_t window = 1;

  [[nodiscard]] bool stream() const { return what.ends_with("-stream"); }
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
bool conducts() { return aplib::this_cell::id() == aplib::CellId{0}; }
aplib::CellId partner() { return aplib::CellId{conducts() ? 1U : 0U}; }

void ping_pong(std::span<const std::byte> out, std::int32_t number) {
  if (conducts()) aplib::put(partner(), out, remote->body.data(), {.arrived = &remote->arrived});
  aplib::wait_flag(remote->arrived, number);
  if (!conducts()) aplib::put(partner(), out, remote->body.data(), {.arrived = &remote->arrived});
}

void put_window(std::span<const std::byte> out, std::uint64_t window) {
  for (std::uint64_t i = 1; i <= window; ++i)
    aplib::put(partner(), out, remote->body.data(), {.acknowledge = i == window});
  aplib::wait_acknowledged();
}

void get_window(std::span<std::byte> in, std::uint64_t window) {
  aplib::Flag here;
  for (std::uint64_t i = 0; i < window; ++i) aplib::get(partner(), in, remote->body.data(), {.arrived = &here});
  aplib::wait_flag(here, static_cast<std::int32_t>(window));
}

// On both cells: some operations for warm-up, then `count`. Returns the seconds of these.
double perform(const Work& work, std::uint64_t count) {
  const std::uint64_t warm = std::min<std::uint64_t>(count / 5 + 1, work.stream() ? warm_windows_max : 10'000);
  const std::span<std::byte> mine = std::span<std::byte>(local).first(work.bytes);
  remote->arrived.reset();
  remote->counter = 0;
  aplib::barrier();
  double start = now();
  for (std::uint64_t i = 1; i <= warm + count; ++i) {
    if (work.what == "put") {
      ping_pong(mine, static_cast<std::int32_t>(i));
    } else if (conducts()) {
      if (work.what == "put-stream") put_window(mine, work.window);
      if (work.what == "get" || work.what == "get-stream") get_window(mine, work.window);
      if (work.what == "fetch-add") static_cast<void>(aplib::fetch_add(partner(), &remote->counter, 1));
    }
    if (i == warm) start = now();
  }
  const double seconds = now() - start;
  aplib::barrier();
  if (work.what == "fetch-add" && !conducts() && remote->counter != warm + count) {
    std::fprintf(stderr, "bench-puts: an addition of fetch_add is missing\n");
    std::exit(1);
  }
  return seconds;
}

// Cell 0 says how many operations follow; 0: none.
double timed(const Work& work, std::uint64_t count) {
  aplib::send(partner(), count);
  return count == 0 ? 0 : perform(work, count);
}

double seconds_of(const Work& work) {
  std::uint64_t count = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double wanted = static_cast<double>(count) * sample_seconds / std::max(timed(work, count), 1e-9);
    const auto next = static_cast<std::uint64_t>(std::clamp(wanted, 1.0, 1e7));
    if (next <= count) {
      count = next;
      break;
    }
    count = std::min<std::uint64_t>(next, count * 200);
  }
  std::vector<double> values;
  const double begun = now();
  for (int i = 0; i < samples && (i < samples_min || now() - begun < all_samples_seconds); ++i)
    values.push_back(timed(work, count) / static_cast<double>(count));
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// 64, fewer when that would be more than 16 MiB, as in apbench.
std::uint64_t window_of(std::uint64_t bytes) {
  constexpr std::uint64_t under_way_max = 16U << 20;
  return std::clamp<std::uint64_t>(under_way_max / std::max<std::uint64_t>(bytes, 1), 4, 64);
}

}  // namespace

int main(int argc, char** argv) {
  Work work{.what = argc > 1 ? argv[1] : "", .bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 8};
  const std::array<const char*, 5> known{"put", "put-stream", "get", "get-stream", "fetch-add"};
  if (aplib::this_machine::cell_count() != 2 || work.bytes > bytes_max ||
      std::find(known.begin(), known.end(), work.what) == known.end()) {
    if (conducts())
      std::fputs("usage, on 2 cells: bench-puts put|put-stream|get|get-stream|fetch-add [BYTES, at most 4 Mi]\n",
                 stderr);
    return 2;
  }
  if (work.stream()) work.window = window_of(work.bytes);
  const auto memory = aplib::make_symmetric<Remote>();
  remote = memory.get();
  if (!conducts()) {
    for (;;) {
      const auto count = aplib::receive({.cell = partner()}).as<std::uint64_t>();
      if (count == 0) return 0;
      perform(work, count);
    }
  }
  const double seconds = seconds_of(work);
  timed(work, 0);
  if (work.stream()) {
    std::printf("%.4f\n", static_cast<double>(work.bytes * work.window) / seconds / 1e9);
  } else {
    std::printf("%.3f\n", seconds * 1e9 / (work.what == "put" ? 2 : 1));
  }
  return 0;
}
