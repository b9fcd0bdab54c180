// SPDX-License-Identifier: MIT
// FrameReader keeps its promises for any bytes of a peer, in any pieces. Another seed: APLIB_TEST_SEED=n.
// tests/system/fuzz/frames_fuzz.cpp searches further, guided by coverage.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checks.hpp"
#include "stream_mutator.hpp"
#include "stream_promises.hpp"

namespace aplib::comm::test {
namespace {

using testing_support::test_seed;

TEST(FramesFuzzTest, SoundStreams) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  StreamMutator mutator(test_seed());
  std::uint64_t frames = 0;
  for (int i = 0; i < 2'000; ++i) {
    const std::vector<std::byte> stream = mutator.sound();
    StreamSummary summary;
    ASSERT_EQ(broken_promise(
                  stream, [&] { return mutator.draw(); }, &summary),
              "")
        << "stream " << i;
    ASSERT_FALSE(summary.refused) << "stream " << i;
    frames += summary.frames;
  }
  EXPECT_GT(frames, 4'000U);
}

TEST(FramesFuzzTest, SpoiltStreams) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  StreamMutator mutator(test_seed());
  std::string description;
  int refused = 0;
  int ended = 0;
  std::uint64_t frames = 0;
  constexpr int mutations = 20'000;
  for (int i = 0; i < mutations; ++i) {
    const std::vector<std::byte> stream = mutator.next(description);
    StreamSummary summary;
    ASSERT_EQ(broken_promise(
                  stream, [&] { return mutator.draw(); }, &summary),
              "")
        << "stream " << i << ": " << description;
    refused += summary.refused ? 1 : 0;
    ended += summary.ended_in_order ? 1 : 0;
    frames += summary.frames;
  }
  // Streams that all fail at the first byte would prove nothing, nor would harmless ones.
  EXPECT_GT(refused, mutations / 10);
  EXPECT_LT(refused, mutations * 9 / 10);
  EXPECT_GT(ended, mutations / 20);
  EXPECT_GT(frames, static_cast<std::uint64_t>(mutations));
}

}  // namespace
}  // namespace aplib::comm::test
