// SPDX-License-Identifier: MIT
// net-probe HOSTS FIRST SECONDS PLACE...: what `apctl net` runs as one cell on each host. PLACE is, for each cell, its
// number among so many HOSTS, some of which may be missing. Beginning with the round FIRST, each pair of hosts
// measures, in both directions: messages there and back, then a stream of messages for so many SECONDS. The sender
// prints the result.
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <vector>

#include "aplib/aplib.hpp"
#include "launch/net/measurement.hpp"
#include "launch/net/pace.hpp"
#include "launch/net/tournament.hpp"

namespace {

using namespace aplib::launch::net;

constexpr std::int32_t ping_type = 1;  // an std::uint8_t: whether another one follows
constexpr std::int32_t data_type = 2;
constexpr std::int32_t counted_type = 3;  // data that counts
constexpr std::int32_t end_type = 4;
constexpr std::int32_t arrived_type = 5;  // an std::uint64_t: bytes
constexpr std::int32_t result_type = 6;

// The first ones wait for connections.
constexpr std::size_t warm_pings = 2;
constexpr std::size_t pings_min = 8;
constexpr std::size_t pings_max = 200;
constexpr double pings_seconds = 0.1;
// Of a stream, what is sent while it grows is not counted. Nor is what is sent at its end, until all that counts has
// arrived: the path is as full then as it was when the clock started, and what had come by several connections before
// its turn is as much.
constexpr double growing_share = 0.2;
constexpr double growing_round_trips = 8;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// What the system counts for this process's TCP connections. Between two calls only one partner is served, so whatever
// connections carried much belong to it.
using Connections = std::map<int, tcp_info>;

Connections connections() {
  Connections found;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (const dirent* const entry = readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);  // "." and "..": 0, which is no socket of a node
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) found[descriptor] = info;
  }
  closedir(folder);
  return found;
}

void count(Measurement& measurement, const Connections& before, const Connections& after) {
  constexpr double share_min = 0.02;  // less is the launcher's
  constexpr double microsecond = 1e-6;
  const auto of = [](const Connections& those, int descriptor) {
    const auto found = those.find(descriptor);
    return found == those.end() ? tcp_info{} : found->second;
  };
  double all = 0;
  for (const auto& [descriptor, info] : after)
    all += static_cast<double>(info.tcpi_bytes_acked - of(before, descriptor).tcpi_bytes_acked);
  for (const auto& [descriptor, info] : after) {
    const tcp_info old = of(before, descriptor);
    const auto acknowledged = static_cast<double>(info.tcpi_bytes_acked - old.tcpi_bytes_acked);
    if (acknowledged < std::max(share_min * all, 0.1 * measurement.bytes * share_min)) continue;
    ++measurement.streams;
    measurement.sent += static_cast<double>(info.tcpi_bytes_sent - old.tcpi_bytes_sent);
    measurement.sent_again += static_cast<double>(info.tcpi_bytes_retrans - old.tcpi_bytes_retrans);
    measurement.busy += static_cast<double>(info.tcpi_busy_time - old.tcpi_busy_time) * microsecond;
    measurement.receiver_limited += static_cast<double>(info.tcpi_rwnd_limited - old.tcpi_rwnd_limited) * microsecond;
    measurement.sender_limited += static_cast<double>(info.tcpi_sndbuf_limited - old.tcpi_sndbuf_limited) * microsecond;
  }
}

/// Bytes that have come by all connections. Of several that carry one stream, some bring what waits for its turn:
/// counted as messages, it would come all at once.
double received_bytes() {
  double bytes = 0;
  for (const auto& [descriptor, info] : connections()) bytes += static_cast<double>(info.tcpi_bytes_received);
  return bytes;
}

struct Result {
  double bytes = 0;
  double time = 0;
  double cores = 0;
};

class Pair {
 public:
  Pair(aplib::CellId partner, double seconds) : partner_(partner), seconds_(seconds), buffer_(Pace::message_max) {}

  // Sends, and gives what was measured.
  Measurement lead() {
    Measurement measurement;
    ping(measurement);
    const Connections before = connections();
    const double begun = now();
    const double processor_begun = processor_seconds();
    stream(measurement.round_trip);
    const auto result = aplib::receive({.cell = partner_, .type = result_type}).as<Result>();
    measurement.bytes = result.bytes;
    measurement.time = result.time;
    measurement.receiver_cores = result.cores;
    measurement.sender_cores = (processor_seconds() - processor_begun) / (now() - begun);
    count(measurement, before, connections());
    return measurement;
  }

  // Answers and receives. The clock starts with the last look before the messages that count.
  void follow() {
    for (bool more = true; more;) {
      more = aplib::receive({.cell = partner_, .type = ping_type}).as<std::uint8_t>() != 0;
      aplib::send(partner_, std::uint8_t{0}, {.type = ping_type});
    }
    constexpr double look_pause = 0.002;  // a look takes a part of a millisecond
    Result result;
    double mark = now();
    double processor_mark = processor_seconds();
    double processor_end = processor_mark;
    double received_mark = received_bytes();
    double looked = mark;
    double counted_bytes = 0;  // of messages
    for (;;) {
      const aplib::Envelope got = aplib::receive_into(buffer_, {.cell = partner_});
      if (got.type == end_type) break;
      aplib::send(partner_, static_cast<std::uint64_t>(got.bytes), {.type = arrived_type});
      if (got.type == counted_type) counted_bytes += static_cast<double>(got.bytes);
      const bool began = counted_bytes != 0;
      const double time = now();
      if (result.time != 0 && time - looked < look_pause) continue;
      if (got.type == counted_type) {
        result.bytes = received_bytes() - received_mark;
        result.time = time - mark;
        processor_end = processor_seconds();
        looked = time;
      } else if (!began && time - looked >= look_pause) {
        received_mark = received_bytes();
        mark = looked = time;
        processor_mark = processor_seconds();
      }
    }
    if (2 * result.bytes < counted_bytes) result.bytes = counted_bytes;  // not by TCP
    if (result.time > 0) result.cores = (processor_end - processor_mark) / result.time;
    aplib::send(partner_, result, {.type = result_type});
  }

 private:
  void ping(Measurement& measurement) {
    std::vector<double> times;
    const double begun = now();
    for (std::size_t i = 0;; ++i) {
      const bool more = times.size() + 1 < pings_max &&
                        (times.size() + 1 < pings_min || i < warm_pings || now() - begun < pings_seconds);
      const double sent = now();
      aplib::send(partner_, static_cast<std::uint8_t>(more), {.type = ping_type});
      (void)aplib::receive({.cell = partner_, .type = ping_type});
      if (i >= warm_pings) times.push_back(now() - sent);
      if (!more) break;
    }
    std::sort(times.begin(), times.end());
    measurement.round_trip = times.front();
    measurement.round_trip_median = times[times.size() / 2];
  }

  void stream(double round_trip) {
    Pace pace(round_trip);
    std::uint64_t sent = 0;
    std::uint64_t arrived = 0;
    std::uint64_t last_counted = 0;  // The number of messages up to it.
    const auto hear = [&] {
      pace.arrived(aplib::receive({.cell = partner_, .type = arrived_type}).as<std::uint64_t>(), now());
      ++arrived;
    };
    const double counted_from = now() + growing_share * seconds_ + growing_round_trips * round_trip;
    const double counted_until = counted_from + (1 - growing_share) * seconds_;
    while (now() < counted_until || last_counted == 0 || arrived < last_counted) {
      while (pace.may_send()) {
        const std::size_t bytes = pace.message();
        const double time = now();
        const bool counts = time >= counted_from && (time < counted_until || last_counted == 0);
        aplib::send(partner_, std::span<const std::byte>(buffer_).first(bytes),
                    {.type = counts ? counted_type : data_type});
        pace.sent(bytes);
        ++sent;
        if (counts) last_counted = sent;
      }
      hear();
    }
    aplib::send(partner_, std::span<const std::byte>(), {.type = end_type});
    while (arrived < sent) hear();
  }

  aplib::CellId partner_;
  double seconds_;
  std::vector<std::byte> buffer_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::uint32_t cells = aplib::this_machine::cell_count();
  if (argc != 4 + static_cast<int>(cells)) {
    std::fputs("net-probe: it is for apctl net\n", stderr);
    return 2;
  }
  const auto number = [&](int at) { return static_cast<std::uint32_t>(std::strtoul(argv[at], nullptr, 10)); };
  const std::uint32_t hosts = number(1);
  const double seconds = std::strtod(argv[3], nullptr);
  std::map<std::uint32_t, std::uint32_t> cell_at;
  for (std::uint32_t cell = 0; cell < cells; ++cell) cell_at[number(4 + static_cast<int>(cell))] = cell;
  const std::uint32_t place = number(4 + static_cast<int>(index(aplib::this_cell::id())));
  for (std::uint32_t round = number(2); round < rounds_of(hosts); ++round) {
    aplib::barrier();
    std::fputs(round_line(round).c_str(), stdout);
    std::fflush(stdout);
    const auto other = partner_of(hosts, round, place);
    const auto found = other ? cell_at.find(*other) : cell_at.end();
    if (found == cell_at.end()) continue;
    Pair pair(aplib::CellId{found->second}, seconds);
    for (const bool leads : {place<*other, place> * other}) {
      if (!leads) {
        pair.follow();
        continue;
      }
      Measurement measurement = pair.lead();
      measurement.from = place;
      measurement.to = *other;
      std::fputs(measurement_line(measurement).c_str(), stdout);
    }
    std::fflush(stdout);
  }
}
