// SPDX-License-Identifier: MIT
// The promises of every module, kept by shm.
#include "conformance.hpp"

#include "shm_net.hpp"

namespace aplib::comm::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         testing::Values(Subject{
                             "auth", [](std::uint32_t processes) { return std::make_unique<ShmNet>(processes); }}),
                         subject_name);

/// Only the greeting differs.
TEST(ShmSecure, FramesGoWithEach) {
  for (const Secure secure : {Secure::off, Secure::tls}) {
    ShmNet net(2, secure);
    Node one(net, 0, 2);
    Node other(net, 1, 2);
    one.send(1, 100);
    other.send(0, 50'000);
    while (one.recorder().frames() == 0 || other.recorder().frames() == 0) {
      one.poll();
      other.poll();
    }
    one.destroy();
    other.destroy();
  }
}

TEST(ShmCalls, OfTwoThatCrossNoneIsAStranger) {
  for (int round = 0; round < 50; ++round) {
    ShmNet net(2);
    Node one(net, 0, 2);
    Node other(net, 1, 2);
    other.send(0, 100);
    one.send(1, 100);
    while (one.recorder().frames() == 0 || other.recorder().frames() == 0) {
      one.poll();
      other.poll();
    }
    EXPECT_EQ(one.module().traffic().refused + other.module().traffic().refused, 0U);
    one.destroy();
    other.destroy();
  }
}

}  // namespace
}  // namespace aplib::comm::test
