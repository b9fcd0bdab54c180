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

INSTANTIATE_TEST_SUITE_P(Rdma, Conformance,
                         testing::Values(subject("tcp", {}), subject("off", {.secure = Secure::off})), subject_name);

}  // namespace
}  // namespace aplib::comm::test
