// SPDX-License-Identifier: MIT
// The promises of every module, kept by tcp in each of its modes.
#include "conformance.hpp"

#include "tcp_net.hpp"

namespace aplib::comm::test {
namespace {

Subject subject(std::string name, TcpNetOptions options) {
  return {std::move(name), [options](std::uint32_t processes) { return std::make_unique<TcpNet>(processes, options); }};
}

std::vector<Subject> subjects() {
  std::vector<Subject> all{subject("auth", {}), subject("tls", {.secure = Secure::tls}),
                           subject("off", {.secure = Secure::off}), subject("streams", {.streams = 4}),
                           subject("tls_streams", {.secure = Secure::tls, .streams = 3})};
  if (has_ipv6()) all.push_back(subject("ipv6", {.address = "::1"}));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace aplib::comm::test
