// SPDX-License-Identifier: MIT
// Latency, bandwidth and message rate between two cells, by the conventions of the OSU micro-benchmarks: latency is
// half a ping-pong; a stream is sent in windows, each of which ends with an acknowledgement; the receiver reads the
// payload only with --touch.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "aplib/aplib.hpp"
#include "benches.hpp"
#include "buffer.hpp"

namespace apbench {
namespace {

constexpr std::int32_t data_type = 1;
constexpr std::int32_t ack_type = 2;
constexpr int fill[2] = {0x5a, 0x3c};  // what cell 0 and cell 1 send

/// How a message is received.
struct Way {
  bool posted = false;
  bool touch = false;
};

// One end of a connection between cells 0 and 1.
class End {
 public:
  End(std::size_t bytes, Way way)
      : me_(aplib::index(aplib::this_cell::id())),
        peer_{me_ == 0 ? 1U : 0U},
        way_(way),
        out_(bytes, fill[me_]),
        in_(bytes) {}

  [[nodiscard]] bool first() const noexcept { return me_ == 0; }

  void send(std::uint32_t task = 0) {
    aplib::send(peer_, out_.span(), {.task = aplib::TaskId{task}, .type = data_type});
  }

  void receive() {
    if (way_.posted) {
      got_ = in_.span().first(aplib::receive_into(in_.span(), from(data_type)).bytes);
    } else {
      aplib::receive(message_, from(data_type));
      got_ = message_.bytes();
    }
    if (way_.touch) touch_lines(got_);
  }

  void send_ack() { aplib::send(peer_, std::uint64_t{1}, {.type = ack_type}); }
  void receive_ack() { aplib::receive(ack_, from(ack_type)); }

  // Check the last message once per sample: a fast wrong answer is not a figure.
  void check() const {
    const auto wanted = static_cast<std::byte>(fill[aplib::index(peer_)]);
    if (got_.size() != out_.size() || (!got_.empty() && (got_.front() != wanted || got_.back() != wanted))) {
      throw std::runtime_error(fmt::format("cell {}: a message of {} bytes arrived with {} bytes or another content",
                                           me_, out_.size(), got_.size()));
    }
  }

 private:
  [[nodiscard]] aplib::From from(std::int32_t type) const noexcept { return {.cell = peer_, .type = type}; }

  std::uint32_t me_;
  aplib::CellId peer_;
  Way way_;
  Buffer out_;
  Buffer in_;
  aplib::Message message_;
  aplib::Message ack_;
  std::span<const std::byte> got_;
};

// Seconds of `count` ping-pongs between cells 0 and 1.
double ping_pongs(aplib::Machine& machine, std::size_t bytes, Way way, std::uint64_t count) {
  double seconds = 0;
  run_placed(machine, [&seconds, bytes, way, count] {
    End end(bytes, way);
    const auto exchange = [&end](std::uint64_t times) {
      for (std::uint64_t i = 0; i < times; ++i) {
        if (end.first()) {
          end.send();
          end.receive();
        } else {
          end.receive();
          end.send();
        }
      }
    };
    exchange(std::min<std::uint64_t>(count / 5 + 4, 10'000));
    end.check();
    const double start = now_seconds();
    exchange(count);
    if (end.first()) seconds = now_seconds() - start;
  });
  return seconds;
}

// Seconds of `count` windows from cell 0 to cell 1.
double windows(aplib::Machine& machine, std::size_t bytes, std::uint64_t window, Way way, std::uint64_t count) {
  double seconds = 0;
  run_placed(machine, [&seconds, bytes, window, way, count] {
    End end(bytes, way);
    const auto stream = [&end, window](std::uint64_t times) {
      for (std::uint64_t i = 0; i < times; ++i) {
        if (end.first()) {
          for (std::uint64_t j = 0; j < window; ++j) end.send();
          end.receive_ack();
        } else {
          for (std::uint64_t j = 0; j < window; ++j) end.receive();
          end.send_ack();
        }
      }
    };
    stream(std::min<std::uint64_t>(count / 5 + 2, 100));
    if (!end.first()) end.check();
    const double start = now_seconds();
    stream(count);
    if (end.first()) seconds = now_seconds() - start;
  });
  return seconds;
}

// The same with all receives of a window posted before its messages come. Each receive has a task, as each has a
// request in an MPI program.
double posted_windows(aplib::Machine& machine, std::size_t bytes, std::uint64_t window, bool touch,
                      std::uint64_t count) {
  double seconds = 0;
  run_placed(machine, [&seconds, bytes, window, touch, count] {
    End end(bytes, {.posted = true, .touch = touch});
    const std::uint64_t warm = std::min<std::uint64_t>(count / 5 + 2, 100);
    if (end.first()) {
      double start = 0;
      for (std::uint64_t i = 0; i < warm + count; ++i) {
        if (i == warm) start = now_seconds();
        for (std::uint32_t j = 1; j <= window; ++j) end.send(j);
        end.receive_ack();
      }
      seconds = now_seconds() - start;
      return;
    }
    std::uint64_t arrived = 0;
    std::vector<aplib::Task> receivers;
    for (std::uint32_t j = 1; j <= window; ++j) {
      receivers.push_back(aplib::spawn(
          [&end, &arrived, window, times = warm + count] {
            for (std::uint64_t i = 0; i < times; ++i) {
              end.receive();
              if (++arrived % window == 0) end.send_ack();
            }
          },
          aplib::TaskId{j}));
    }
    for (aplib::Task& receiver : receivers) receiver.join();
    end.check();
  });
  return seconds;
}

struct Case {
  const char* name;
  unsigned threads;
  bool posted;
};
constexpr std::array<Case, 4> cases{{{"two-processors", 2, false},
                                     {"two-processors-posted", 2, true},
                                     {"one-processor", 1, false},
                                     {"one-processor-posted", 1, true}}};

template <class Add>
void for_each_case(const Wishes& wishes, const std::vector<std::size_t>& default_bytes, Add add) {
  for (const Case& c : cases) {
    if (!wishes.wants(c.name)) continue;
    for (const std::size_t bytes : wishes.bytes.empty() ? default_bytes : wishes.bytes) add(c, bytes);
  }
}

}  // namespace

void plan_latency(Plan& plan, Machines& machines, const Wishes& wishes) {
  for_each_case(wishes, {8, 64, 1024, 8192, 65536, 1U << 20, 4U << 20}, [&](const Case& c, std::size_t bytes) {
    const Way way{c.posted, wishes.touch};
    plan.push_back(
        {.bench = "latency",
         .case_name = c.name,
         .bytes = bytes,
         .unit = "ns",
         .run = [&machines, c, bytes,
                 way](std::uint64_t n) { return ping_pongs(machines.get(2, c.threads), bytes, way, n); },
         .value = [](double seconds, std::uint64_t n) { return nanoseconds_per_operation(seconds, 2 * n); }});
  });
}

void plan_bandwidth(Plan& plan, Machines& machines, const Wishes& wishes) {
  for_each_case(wishes, {64, 1024, 8192, 65536, 1U << 20, 4U << 20}, [&](const Case& c, std::size_t bytes) {
    const Way way{c.posted, wishes.touch};
    const std::uint64_t window = window_of(bytes);
    const auto run = [&machines, c, bytes, window, way](std::uint64_t n) {
      aplib::Machine& machine = machines.get(2, c.threads);
      return way.posted ? posted_windows(machine, bytes, window, way.touch, n)
                        : windows(machine, bytes, window, way, n);
    };
    plan.push_back({.bench = "bandwidth",
                    .case_name = c.name,
                    .bytes = bytes,
                    .unit = "GB/s",
                    .run = run,
                    .value = gigabytes_per_second(bytes * window)});
  });
}

void plan_rate(Plan& plan, Machines& machines, const Wishes& wishes) {
  constexpr std::size_t bytes = 8;
  constexpr std::uint64_t window = 1024;  // long, so that the rate of the stream counts and not the acknowledgement
  for (const Case& c : cases) {
    if (c.threads != 2 || !wishes.wants(c.name)) continue;
    const Way way{c.posted, wishes.touch};
    plan.push_back(
        {.bench = "rate",
         .case_name = c.name,
         .bytes = bytes,
         .unit = "M/s",
         .run = [&machines, way](std::uint64_t n) { return windows(machines.get(2, 2), bytes, window, way, n); },
         .value = [](double seconds, std::uint64_t n) { return static_cast<double>(n * window) / seconds / 1e6; }});
  }
}

}  // namespace apbench
