// SPDX-License-Identifier: MIT
// bench-net: figures of sockets and OpenSSL alone between two processes. They are the floors of apbench's `hosts`,
// measured and printed in the same way.
//
//   bench-net sockets-latency sockets-stream tls-stream --bytes 8,64k,1m --json
//   bench-net sockets-stream --bytes 64k --between a,b --address 10.0.0.2     (network namespaces a and b; root)
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "../apbench/measure.hpp"
#include "../apbench/report.hpp"
#include "pair.hpp"

namespace {

using net::Kind;

struct Case {
  const char* name;
  Kind kind;
  bool stream;
};
constexpr std::array cases{Case{"sockets-latency", Kind::sockets, false}, Case{"sockets-stream", Kind::sockets, true},
                           Case{"tls-latency", Kind::tls, false}, Case{"tls-stream", Kind::tls, true}};

/// As in apbench's bandwidth: 64 messages, fewer when that would be more than 16 MiB.
std::uint64_t window_of(std::size_t bytes) {
  constexpr std::size_t under_way_max = 16U << 20;
  return std::clamp<std::uint64_t>(under_way_max / std::max<std::size_t>(bytes, 1), 4, 64);
}

apbench::Measurement measurement(const Case& c, std::size_t bytes, net::Pair& pair) {
  apbench::Measurement m{.bench = "net", .case_name = c.name, .bytes = bytes, .unit = "", .run = {}, .value = {}};
  if (c.stream) {
    const std::uint64_t window = window_of(bytes);
    m.unit = "GB/s";
    m.run = [&pair, bytes, window](std::uint64_t n) { return pair.windows(bytes, window, n); };
    m.value = apbench::gigabytes_per_second(bytes * window);
  } else {
    m.unit = "ns";
    m.run = [&pair, bytes](std::uint64_t n) { return pair.ping_pongs(bytes, n); };
    m.value = [](double seconds, std::uint64_t n) { return apbench::nanoseconds_per_operation(seconds, 2 * n); };
  }
  return m;
}

void run(int argc, char** argv) {
  std::vector<std::string> names;
  std::vector<std::string> sizes{"8"};
  std::vector<std::string> namespaces;
  net::Placement placement;
  apbench::Pace pace;
  double sample_ms = 6;
  bool json = false;
  CLI::App app("bench-net: what sockets and OpenSSL alone reach between two processes", "bench-net");
  std::vector<std::string> known;
  for (const Case& c : cases) known.emplace_back(c.name);
  app.add_option("case", names, "What to measure")->required()->check(CLI::IsMember(known));
  app.add_option("--bytes", sizes, "Message sizes")->delimiter(',')->option_text("8,64k,1m");
  app.add_option("--between", namespaces, "Two network namespaces (root)")->delimiter(',')->expected(2);
  app.add_option("--address", placement.address, "Of the second process")->capture_default_str();
  app.add_option("--samples", pace.samples, "Samples of each figure, taken in turn")->check(CLI::Range(1, 1000));
  app.add_option("--sample-ms", sample_ms, "Milliseconds of one sample")->check(CLI::Range(0.0, 10'000.0));
  app.add_flag("--json", json, "One JSON object a line instead of a table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  if (!namespaces.empty()) {
    placement.near_namespace = namespaces[0];
    placement.far_namespace = namespaces[1];
  }
  pace.sample_seconds = sample_ms / 1e3;

  // One pair after another, because two would share the cores.
  std::vector<apbench::Result> results;
  for (const Kind kind : {Kind::sockets, Kind::tls}) {
    const auto wanted = [&](const Case& c) {
      return c.kind == kind && std::find(names.begin(), names.end(), c.name) != names.end();
    };
    if (std::none_of(cases.begin(), cases.end(), wanted)) continue;
    net::Pair pair(kind, placement);
    apbench::Plan plan;
    for (const Case& c : cases) {
      if (!wanted(c)) continue;
      for (const std::string& size : sizes) plan.push_back(measurement(c, apbench::parse_bytes(size), pair));
    }
    for (apbench::Result& result : apbench::measure(plan, pace)) results.push_back(std::move(result));
  }
  if (json) {
    for (const apbench::Result& result : results) fmt::print("{}\n", apbench::json_line(result));
  } else {
    fmt::print("{}", apbench::table(results));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "bench-net: --bytes: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-net: {}\n", error.what());
    return 1;
  }
}
