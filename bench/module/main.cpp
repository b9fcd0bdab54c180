// SPDX-License-Identifier: MIT
// bench-module MODULE[:PROVIDER] CASE [BYTES]: prints one figure of a module alone, between two processes of this
// computer on a core each. apbench's `module` runs it.
//   usable               "yes", "yes, with remote memory", or why not
//   latency, rate        ns one way, half a ping-pong of frames; million frames a second
//   stream               GB/s, windows of frames
//   put, put-stream      by remote memory: ns to visibility, half a ping-pong of writes; GB/s
//   get, get-stream      ns until the data has arrived; GB/s
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "../apbench/measure.hpp"
#include "comm/kind.hpp"
#include "end.hpp"
#include "two_processes.hpp"

namespace {

using namespace aplib::comm;
using apbench::now_seconds;
using bench_module::End;
using bench_module::Wire;

constexpr double sample_seconds = 0.002;  // short, so that a disturbance is in few samples
constexpr int samples = 25;
constexpr int samples_min = 3;
constexpr double all_samples_seconds = 0.25;  // no more samples after that
constexpr std::size_t word_bytes = sizeof(std::uint64_t);

enum class Kind : std::uint8_t { end, ping_pong, window, put, put_window, get_window };

struct Order {
  Kind kind = Kind::end;
  std::size_t bytes = 0;
  std::uint64_t window = 1;
  std::uint64_t count = 0;
};

struct Case {
  const char* name;
  Kind kind;
  std::size_t bytes;     // when none are named
  std::uint64_t window;  // 0: as many as a stream has
  const char* unit;
};
constexpr std::size_t mib = 1U << 20;
constexpr std::array cases{
    Case{"latency", Kind::ping_pong, 8, 1, "ns one way"}, Case{"rate", Kind::window, 8, 1024, "M/s"},
    Case{"stream", Kind::window, mib, 0, "GB/s"},         Case{"put", Kind::put, 8, 1, "ns one way"},
    Case{"put-stream", Kind::put_window, mib, 0, "GB/s"}, Case{"get", Kind::get_window, 8, 1, "ns"},
    Case{"get-stream", Kind::get_window, mib, 0, "GB/s"}};

/// As in apbench's streams: 64, fewer when that would be more than the arena.
std::uint64_t window_of(std::size_t bytes) {
  return std::clamp<std::uint64_t>(End::arena_bytes / std::max<std::size_t>(bytes, 1), 1, 64);
}

/// Both processes meet here. Each polls until then, so that the other's transfers progress and what was held back is
/// sent.
void meet(End& end) {
  end.send(end.local().first(word_bytes));
  end.await_frames(1);
  end.flush();
}

/// The nth put: a word with its number and, if there is room, as many bytes more. Does not wait until it is done, but
/// uses other memory for the next one.
void put(End& end, const Order& order, std::uint64_t number) {
  constexpr std::uint64_t under_way_max = 8;
  const std::size_t at = number % under_way_max * order.bytes;
  if (number > under_way_max) end.await_transfers(1);
  std::memcpy(end.local().data() + at, &number, word_bytes);
  end.write(order.bytes, at);
  if (number == order.count) end.await_transfers(std::min(number, under_way_max));
}

/// What both processes do for an order; `near` leads. Returns the seconds of the operations after the first `warm`.
double perform(End& end, const Order& order, bool near, std::uint64_t warm) {
  const std::span<const std::byte> body = std::span<const std::byte>(end.local()).first(order.bytes);
  const std::span<const std::byte> ack = body.first(std::min(order.bytes, word_bytes));
  std::memset(end.arena().data(), 0, word_bytes);
  meet(end);
  double start = now_seconds();
  for (std::uint64_t i = 1; i <= order.count; ++i) {
    switch (order.kind) {
      case Kind::ping_pong:
        if (near) end.send(body);
        end.await_frames(1);
        if (!near) end.send(body);
        break;
      case Kind::window:
        for (std::uint64_t j = 0; near && j < order.window; ++j) end.send(body);
        end.await_frames(near ? 1 : order.window);
        if (!near) end.send(ack);
        break;
      case Kind::put:
        if (near) put(end, order, i);
        end.await_word(i);
        if (!near) put(end, order, i);
        break;
      case Kind::put_window:
      case Kind::get_window:
        if (!near) break;
        for (std::uint64_t j = 0; j < order.window; ++j)
          order.kind == Kind::put_window ? end.write(order.bytes, 0) : end.read(order.bytes, j * order.bytes);
        end.await_transfers(order.window);
        break;
      case Kind::end:
        break;
    }
    if (i == warm) start = now_seconds();
  }
  const double seconds = now_seconds() - start;
  meet(end);
  return seconds;
}

double timed(End& end, const Wire& wire, Order order, std::uint64_t count) {
  const std::uint64_t warm = std::min<std::uint64_t>(count / 5 + 1, order.kind == Kind::window ? 100 : 10'000);
  order.count = warm + count;
  wire.tell(order);
  return perform(end, order, true, warm);
}

/// Median seconds of one operation.
double seconds_of(End& end, const Wire& wire, const Order& order) {
  std::uint64_t count = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double wanted = static_cast<double>(count) * sample_seconds / std::max(timed(end, wire, order, count), 1e-9);
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
    values.push_back(timed(end, wire, order, count) / static_cast<double>(count));
  return apbench::summarize(values).median;
}

double figure(const Case& c, const Order& order, double seconds) {
  const double moved = static_cast<double>(order.window) / seconds;
  if (std::strcmp(c.unit, "GB/s") == 0) return static_cast<double>(order.bytes) * moved / 1e9;
  if (std::strcmp(c.unit, "M/s") == 0) return moved / 1e6;
  return seconds * 1e9 / (std::strcmp(c.unit, "ns") == 0 ? 1 : 2);
}

struct Wish {
  std::string module;
  PortSettings settings{
      .address = "127.0.0.1", .ports = {}, .host = "bench-module", .key = JobKey::make(), .provider = {}};
};

/// The plug-in with that name, from the folders in APLIB_MODULE_PATH or APlib's own.
class Plugin {
 public:
  explicit Plugin(const std::string& name) : found_(find_modules(module_path(), name)), kind_(kind_of(found_, name)) {
    if (kind_ == nullptr) throw std::runtime_error(unknown_module(found_, name));
  }
  [[nodiscard]] const ModuleKind& kind() const noexcept { return *kind_; }

 private:
  static std::string module_path() {
    const char* const path = std::getenv("APLIB_MODULE_PATH");
    return path == nullptr ? "" : path;
  }

  std::vector<FoundModule> found_;
  const ModuleKind* kind_;
};

/// For a person: "yes", or why not.
std::string usable(const Wish& wish) {
  try {
    const Plugin plugin(wish.module);
    const ModuleKind& kind = plugin.kind();
    return kind.unusable(wish.settings).value_or(kind.has_remote_memory() ? "yes, with remote memory" : "yes");
  } catch (const std::exception& error) {
    return error.what();
  }
}

void far_process(const Wish& wish, const Wire& wire) {
  const Plugin plugin(wish.module);
  End end(plugin.kind(), wish.settings, 1, wire);
  for (Order order = wire.hear<Order>(); order.kind != Kind::end; order = wire.hear<Order>())
    perform(end, order, false, 0);
  end.close();
}

double near_process(const Wish& wish, const Wire& wire, const Case& c, const Order& order) {
  const Plugin plugin(wish.module);
  End end(plugin.kind(), wish.settings, 0, wire);
  const bool remote = c.kind == Kind::put || c.kind == Kind::put_window || c.kind == Kind::get_window;
  if (remote && !end.reaches_memory()) throw std::runtime_error(fmt::format("{} has no remote memory", wish.module));
  const double seconds = seconds_of(end, wire, order);
  wire.tell(Order{});
  end.close();
  return figure(c, order, seconds);
}

int run(int argc, char** argv) {
  const std::string what = argc >= 3 ? argv[2] : "";
  Wish wish{.module = argc >= 2 ? argv[1] : ""};
  if (const std::size_t colon = wish.module.find(':'); colon != std::string::npos) {
    wish.settings.provider = wish.module.substr(colon + 1);
    wish.module.resize(colon);
  }
  if (what == "usable") {
    fmt::print("{}\n", usable(wish));
    return 0;
  }
  const auto* const found = std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return what == c.name; });
  if (found == cases.end()) {
    std::string names = "usable";
    for (const Case& c : cases) names += std::string("|") + c.name;
    fmt::print(stderr, "usage: bench-module MODULE[:PROVIDER] {} [BYTES]\n", names);
    return 2;
  }
  Order order{found->kind, found->bytes, found->window};
  if (argc > 3) order.bytes = std::strtoull(argv[3], nullptr, 10);
  constexpr std::size_t bytes_max = End::arena_bytes / 8;
  if (order.bytes < word_bytes || order.bytes > bytes_max) {
    throw std::runtime_error(fmt::format("{} bytes: from {} to {} are measured", argv[3], word_bytes, bytes_max));
  }
  if (order.window == 0) order.window = window_of(order.bytes);
  const double value =
      bench_module::on_two_processes([&](const Wire& wire) { return near_process(wish, wire, *found, order); },
                                     [&](const Wire& wire) { far_process(wish, wire); });
  fmt::print("{:.4f}\n", value);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-module: {}\n", error.what());
    return 1;
  }
}
