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
  std::vector<Subject> all{subject("auth", {}), subject("tls_streams", {.secure = Secure::tls, .streams = 3})};
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // the same code and threads again
  all.push_back(subject("tls", {.secure = Secure::tls}));
  all.push_back(subject("off", {.secure = Secure::off}));
  all.push_back(subject("streams", {.streams = 4}));
  if (has_ipv6()) all.push_back(subject("ipv6", {.address = "::1"}));
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace aplib::comm::test
