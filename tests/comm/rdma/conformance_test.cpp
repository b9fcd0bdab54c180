// SPDX-License-Identifier: MIT
// The promises of every module, kept by rdma on the providers that every host has.
#include "conformance.hpp"

#include "rdma_net.hpp"

namespace aplib::comm::test {
namespace {

Subject subject(std::string name, RdmaNetOptions options) {
  return {std::move(name),
          [options](std::uint32_t processes) { return std::make_unique<RdmaNet>(processes, options); }};
}

/// What libfabric's provider shm cannot do.
Subject shm() {
  // It never answers a write to an endpoint that has ended. The module then gives up after half of this time.
  Subject made = subject("shm", {.provider = "shm", .peer_timeout = std::chrono::seconds(8)});
  made.skips["ConcealedMemoryIsSafe"] = "needs a provider that answers a write whose key is wrong";
  return made;
}

std::vector<Subject> subjects() {
  std::vector<Subject> all{subject("tcp", {}), shm()};
#if !defined(__SANITIZE_ADDRESS__)  // the same code, but for a few lines
  all.push_back(subject("off", {.secure = Secure::off}));
  // All buffers are registered with the provider, as devices require.
  all.push_back(subject("registered", {.mr_mode = FI_MR_LOCAL}));
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rdma, Conformance, testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace aplib::comm::test
