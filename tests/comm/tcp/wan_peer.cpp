// SPDX-License-Identifier: MIT
// One of two processes that exchange frames, each at a site of its own (wan_test.py):
//
//   wan_peer KEY SELF ADDRESS OTHER_ADDRESS FRAMES BYTES STREAMS RESUME_SECONDS
//
// 0 calls 1, which must listen, and sends it so many frames of so many bytes. 1 checks them, and answers with one when
// all are there. 0 prints the seconds of that, the rate in Mb/s, and how the two are connected.
#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/job_key.hpp"
#include "comm/tcp/tcp_module.hpp"

namespace {

using namespace aplib::comm;
using Clock = std::chrono::steady_clock;

constexpr const char* port = "5100";
/// As the kernel's option send-limit, in small.
constexpr std::size_t queued_max = std::size_t{64} << 20;

struct Counter final : Receiver {
  bool wants(Peer) override { return true; }
  void frame(Peer, const Label& label, std::span<const std::byte>) override { count(label); }
  std::byte* large_begin(Peer, const Label&, std::size_t bytes) override {
    large.resize(bytes);
    return large.data();
  }
  void large_end(Peer, const Label& label, std::size_t, bool complete) override {
    if (!complete) return;
    bad |= large.front() != static_cast<std::byte>(label.key) || large.back() != static_cast<std::byte>(label.key);
    count(label);
  }
  void peer_lost(Peer, const std::string& reason) override { why = reason; }
  void count(const Label& label) { bad |= label.key != frames++; }
  std::vector<std::byte> large;
  std::uint64_t frames = 0;
  bool bad = false;
  std::string why;
};

int run(char** argv) {
  const auto self = static_cast<Peer>(std::atoi(argv[2]));
  const std::string address = argv[3];
  const std::string other = argv[4];
  const auto frames = static_cast<std::uint64_t>(std::atoll(argv[5]));
  const auto bytes = static_cast<std::size_t>(std::atoll(argv[6]));
  tcp::Listener listener(address, port);
  std::vector<std::string> endpoints{listener.endpoint(), other + ":" + port};
  if (self == 1) std::swap(endpoints[0], endpoints[1]);
  tcp::Settings settings{{.address = address,
                          .ports = {},
                          .host = {},
                          .key = JobKey::from_hex(argv[1]).value(),
                          .streams = static_cast<std::uint32_t>(std::atoi(argv[7])),
                          .provider = {},
                          .resume_time = std::chrono::seconds(std::atoi(argv[8]))},
                         {.machine = "wan", .self = self, .endpoints = std::move(endpoints), .names = {}},
                         std::move(listener)};
  tcp::TcpModule module(std::move(settings));
  Counter counter;
  module.start(counter);
  const Peer peer = 1 - self;
  const auto await = [&](auto&& done) {
    while (!done() && counter.why.empty() && !counter.bad)
      if (!module.poll()) module.wait(std::chrono::milliseconds(100));
  };
  if (self == 0) {
    module.send(peer, {.key = 0}, {});  // connects
    await([&] { return counter.frames == 1; });
    std::vector<std::byte> body(bytes);
    const Clock::time_point begun = Clock::now();
    for (std::uint64_t key = 1; key <= frames; ++key) {
      body.front() = body.back() = static_cast<std::byte>(key);
      module.send(peer, {.key = key}, body);
      module.poll();
      await([&] { return module.queued(peer) < queued_max; });
    }
    std::string how;
    await([&] {
      if (counter.frames == 2) return true;
      how = module.describe(peer);
      return false;
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    fmt::print("{:.3f} {:.1f} {}\n", seconds, static_cast<double>(frames * bytes) * 8e-6 / seconds, how);
  } else {
    await([&] { return counter.frames == 1; });
    module.send(peer, {.key = 0}, {});
    await([&] { return counter.frames == 1 + frames; });
    module.send(peer, {.key = 1}, {});
  }
  if (counter.bad) fmt::print("wrong: frame {}\n", counter.frames);
  if (!counter.why.empty()) fmt::print("lost: {}\n", counter.why);
  return module.close(std::chrono::seconds(10)) && !counter.bad && counter.why.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int words = 9;
  return argc == words ? run(argv) : 2;
}
