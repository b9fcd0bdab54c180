// SPDX-License-Identifier: MIT
// The promises of every module, kept by shm.
#include "conformance.hpp"

#include "shm_net.hpp"

namespace aplib::comm::test {
namespace {

Subject subject(std::string name, Secure secure) {
  return {std::move(name), [secure](std::uint32_t processes) { return std::make_unique<ShmNet>(processes, secure); }};
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance, testing::Values(subject("auth", Secure::auth), subject("off", Secure::off)),
                         subject_name);

}  // namespace
}  // namespace aplib::comm::test
