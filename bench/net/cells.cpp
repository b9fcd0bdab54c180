// SPDX-License-Identifier: MIT
// bench-cells WHAT [BYTES]: a program for a machine of two processes that prints one figure of the communication
// between them. apbench's `hosts` runs it. Cell 0 leads: it tells the others what to do next until it has a figure.
//   latency, latency-posted   ns one way, half a ping-pong between cell 0 and the first cell of the second process
//   stream, stream-posted     GB/s, windows of messages between the same
//   sum, round-trip           ns of a sum of one double over all cells; ns there and back of 8 B
//   sum-over-round-trip       their ratio, made pair by pair
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"

namespace {

constexpr std::int32_t order_type = 1;
constexpr std::int32_t data_type = 2;
constexpr std::int32_t ack_type = 3;
constexpr double sample_seconds = 0.002;  // short, so that a disturbance is in few samples
constexpr int samples = 25;
constexpr int samples_min = 3;
constexpr double all_samples_seconds = 0.25;  // no more samples after that

enum class Kind : std::uint8_t { end, ping_pong, window, sum };

struct Order {
  Kind kind = Kind::end;
  bool posted = false;
  std::uint64_t bytes = 0;
  std::uint64_t window = 1;
  std::uint64_t count = 0;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The two processes have equally many cells, and the first process has the lower numbers.
aplib::CellId far_cell() { return aplib::CellId{aplib::this_machine::cell_count() / 2}; }
bool conducts() { return aplib::index(aplib::this_cell::id()) == 0; }
aplib::CellId partner() { return conducts() ? far_cell() : aplib::CellId{0}; }

class End {
 public:
  explicit End(const Order& order)
      : posted_(order.posted), out_(order.bytes, conducts() ? fill_there : fill_back), in_(order.bytes) {}

  void send(std::uint32_t task = 0) { aplib::send(partner(), out_, {.task = aplib::TaskId{task}, .type = data_type}); }
  void receive() {
    const aplib::From from{.cell = partner(), .type = data_type};
    if (posted_) {
      got_ = std::span<const std::byte>(in_).first(aplib::receive_into(in_, from).bytes);
    } else {
      aplib::receive(message_, from);
      got_ = message_.bytes();
    }
  }
  // A fast wrong answer is not a figure.
  void check() const {
    const std::byte wanted = conducts() ? fill_back : fill_there;
    if (got_.size() == out_.size() && (got_.empty() || (got_.front() == wanted && got_.back() == wanted))) return;
    std::fprintf(stderr, "bench-cells: a message of %zu bytes arrived with %zu, or another content\n", out_.size(),
                 got_.size());
    std::exit(1);
  }

 private:
  static constexpr std::byte fill_there{0x5a};
  static constexpr std::byte fill_back{0x3c};
  bool posted_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  aplib::Message message_;
  std::span<const std::byte> got_;
};

void acknowledge() { aplib::send(partner(), std::uint64_t{1}, {.type = ack_type}); }
void await_acknowledgement() { (void)aplib::receive({.cell = partner(), .type = ack_type}); }

void ping_pong(End& end) {
  if (conducts()) end.send();
  end.receive();
  if (!conducts()) end.send();
}

void send_window(End& end, const Order& order) {
  for (std::uint32_t i = 0; i < order.window; ++i) end.send(order.posted ? i + 1 : 0);
  await_acknowledgement();
}

// All receives of a window are posted before its messages come. Each receive has a task, as each has a request in an
// MPI program.
void receive_posted(const Order& order) {
  End end(order);  // one buffer for all, as in MPI programs of this kind
  std::uint64_t arrived = 0;
  std::vector<aplib::Task> receivers;
  for (std::uint32_t i = 1; i <= order.window; ++i) {
    receivers.push_back(aplib::spawn(
        [&order, &arrived, &end] {
          for (std::uint64_t j = 0; j < order.count; ++j) {
            end.receive();
            if (++arrived % order.window == 0) acknowledge();
          }
        },
        aplib::TaskId{i}));
  }
  acknowledge();  // the receives are posted
  for (aplib::Task& receiver : receivers) receiver.join();
  end.check();
}

void sum() {
  const std::uint32_t cells = aplib::this_machine::cell_count();
  if (aplib::reduce_sum(1.0) == static_cast<double>(cells)) return;
  std::fprintf(stderr, "bench-cells: the sum of 1 over %u cells is wrong\n", cells);
  std::exit(1);
}

// What a cell other than the leader does for an order.
void obey(const Order& order) {
  if (order.kind == Kind::sum) {
    for (std::uint64_t i = 0; i < order.count; ++i) sum();
    return;
  }
  if (aplib::this_cell::id() != far_cell()) return;
  if (order.kind == Kind::window && order.posted) return receive_posted(order);
  End end(order);
  for (std::uint64_t i = 0; i < order.count; ++i) {
    if (order.kind == Kind::ping_pong) {
      ping_pong(end);
    } else {
      for (std::uint64_t j = 0; j < order.window; ++j) end.receive();
      acknowledge();
    }
  }
  end.check();
}

void tell_all(const Order& order) {
  for (std::uint32_t cell = 1; cell < aplib::this_machine::cell_count(); ++cell)
    aplib::send(aplib::CellId{cell}, order, {.type = order_type});
}

// Seconds of `count` operations after some for warm-up.
double timed(Order order, std::uint64_t count) {
  const std::uint64_t warm = std::min<std::uint64_t>(count / 5 + 1, order.kind == Kind::window ? 100 : 10'000);
  order.count = warm + count;
  tell_all(order);
  End end(order);
  if (order.kind == Kind::window && order.posted) await_acknowledgement();
  double start = now();
  for (std::uint64_t i = 0; i < order.count; ++i) {
    if (i == warm) start = now();
    switch (order.kind) {
      case Kind::ping_pong:
        ping_pong(end);
        break;
      case Kind::window:
        send_window(end, order);
        break;
      default:
        sum();
    }
  }
  const double seconds = now() - start;
  if (order.kind == Kind::ping_pong) end.check();
  return seconds;
}

// The number of operations that fills a sample.
std::uint64_t calibrated(const Order& order) {
  std::uint64_t count = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double wanted = static_cast<double>(count) * sample_seconds / std::max(timed(order, count), 1e-9);
    const auto next = static_cast<std::uint64_t>(std::clamp(wanted, 1.0, 1e7));
    if (next <= count) return next;
    count = std::min<std::uint64_t>(next, count * 200);
  }
  return count;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median time of one operation, in seconds.
double seconds_of(const Order& order) {
  const std::uint64_t count = calibrated(order);
  std::vector<double> values;
  const double begun = now();
  for (int i = 0; i < samples && (i < samples_min || now() - begun < all_samples_seconds); ++i)
    values.push_back(timed(order, count) / static_cast<double>(count));
  return median(values);
}

double sum_over_round_trip(const Order& round_trip, const Order& sums) {
  const std::uint64_t trip_count = calibrated(round_trip);
  const std::uint64_t sum_count = calibrated(sums);
  std::vector<double> ratios;
  for (int i = 0; i < samples; ++i) {
    const double trip = timed(round_trip, trip_count) / static_cast<double>(trip_count);
    ratios.push_back(timed(sums, sum_count) / static_cast<double>(sum_count) / trip);
  }
  return median(ratios);
}

// 64 messages, fewer when that would be more than 16 MiB, as in apbench and bench-net.
std::uint64_t window_of(std::uint64_t bytes) {
  constexpr std::uint64_t under_way_max = 16U << 20;
  return std::clamp<std::uint64_t>(under_way_max / std::max<std::uint64_t>(bytes, 1), 4, 64);
}

// Nothing when there is no such figure.
bool measure(const std::string& what, std::uint64_t bytes, double& value) {
  const bool posted = what.ends_with("-posted");
  const Order trip{Kind::ping_pong, posted, bytes};
  const Order stream{Kind::window, posted, bytes, window_of(bytes)};
  const Order sums{Kind::sum};
  if (what == "latency" || what == "latency-posted") {
    value = seconds_of(trip) * 1e9 / 2;
  } else if (what == "stream" || what == "stream-posted") {
    value = static_cast<double>(bytes * stream.window) / seconds_of(stream) / 1e9;
  } else if (what == "round-trip") {
    value = seconds_of(trip) * 1e9;
  } else if (what == "sum") {
    value = seconds_of(sums) * 1e9;
  } else if (what == "sum-over-round-trip") {
    value = sum_over_round_trip(trip, sums);
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (!conducts()) {
    for (;;) {
      const auto order = aplib::receive({.cell = aplib::CellId{0}, .type = order_type}).as<Order>();
      if (order.kind == Kind::end) return 0;
      obey(order);
    }
  }
  double value = 0;
  const bool known = aplib::this_machine::cell_count() >= 2 && argc >= 2 &&
                     measure(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 8, value);
  tell_all({});
  if (!known) {
    std::fputs(
        "usage, on 2 cells or more: bench-cells "
        "latency|latency-posted|stream|stream-posted|round-trip|sum|sum-over-round-trip "
        "[BYTES]\n",
        stderr);
    return 2;
  }
  std::printf("%.3f\n", value);
  return 0;
}
