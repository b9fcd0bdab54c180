// SPDX-License-Identifier: MIT
// The promises of every module, kept by rdma on the providers that any host has.
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
  Subject made = subject("shm", {.provider = "shm"});
  made.skips["CloseOfTheTargetEndsTransfers"] = "libfabric's shm never answers a write to an endpoint that has ended";
  made.skips["ConcealedMemoryIsSafe"] = "libfabric's shm never answers a write whose key is wrong";
  return made;
}

INSTANTIATE_TEST_SUITE_P(Rdma, Conformance,
                         testing::Values(subject("tcp", {}), subject("off", {.secure = Secure::off}), shm()),
                         subject_name);

}  // namespace
}  // namespace aplib::comm::test
