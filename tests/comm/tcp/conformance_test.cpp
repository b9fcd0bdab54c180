// SPDX-License-Identifier: MIT
// The promises of every module, kept by tcp in each of its modes.
#include <poll.h>

#include "conformance.hpp"

#include "tcp_net.hpp"

namespace aplib::comm::test {
namespace {

Subject subject(std::string name, TcpNetOptions options) {
  return {std::move(name), [options](std::uint32_t processes) { return std::make_unique<TcpNet>(processes, options); }};
}

std::vector<Subject> subjects() {
  std::vector<Subject> all{subject("auth", {}), subject("tls_streams", {.secure = Secure::tls, .streams = 3})};
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // the same code and threads again
  all.push_back(subject("tls", {.secure = Secure::tls}));
  all.push_back(subject("off", {.secure = Secure::off}));
  all.push_back(subject("streams", {.streams = 4}));
  if (has_ipv6()) all.push_back(subject("ipv6", {.address = "::1"}));
#endif
  return all;
}

// A thread that polls now and then may come between the arming and the sleep of another one. With TLS it takes more
// from the socket than it hands over.
TEST_P(Conformance, DescriptorHearsWhatAnotherPollHasLeft) {
  make(2);
  Module& module = node(1).module();
  node(0).send(1, 10);
  pump([&] { return node(1).recorder().frames() == 1; });
  while (!module.arm()) {
    module.disarm();
    node(1).poll();
  }
  constexpr std::uint64_t frames = 60;  // 120 kB: more than one read takes
  for (std::uint64_t i = 0; i < frames; ++i) node(0).send(1, 2'000);
  pump([&] { return node(0).module().queued(1) == 0; }, {0});
  node(1).poll();
  const auto over = [&] { return node(1).recorder().frames() == 1 + frames; };
  constexpr int a_minute = 60'000;
  pollfd entry{module.descriptor(), POLLIN, 0};
  EXPECT_TRUE(over() || ::poll(&entry, 1, a_minute) > 0);
  module.disarm();
  pump(over);
}

INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace aplib::comm::test
