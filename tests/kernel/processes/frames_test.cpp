// SPDX-License-Identifier: MIT
// Frames of a peer that are nearly right: each that is not ends the machine with its reason, and none is used.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"
#include "cell/matching.hpp"
#include "fed_module.hpp"

namespace aplib {
namespace {

using testing_support::FedProcess;

constexpr std::size_t large = std::size_t{1} << 20;

comm::Label message_from(std::uint32_t cell) {
  return {.key = MatchKey::make(0, cell, 0, 5), .cell = 1, .kind = static_cast<std::uint32_t>(FrameKind::message)};
}

void expect_nonsense(const Report& report, const std::string& why) {
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::peer_lost));
  EXPECT_NE(report.reason.find("a frame from ws0 makes no sense: " + why), std::string::npos) << report.reason;
}

struct NoCell {
  const char* name;
  std::uint32_t source;
  bool is_large;
  bool is_awaited;  ///< Else it goes through the ring.

  friend void PrintTo(const NoCell& of, std::ostream* out) { *out << of.name; }
};

class MessageOfNoCell : public testing::TestWithParam<NoCell> {};

// The machine has two cells and no host program, which would have the number behind the last cell.
TEST_P(MessageOfNoCell, EndsTheMachineWithItsReason) {
  FedProcess process;
  std::atomic<bool> goes{false};
  std::atomic<bool> came{false};
  process.module.feed = [&](comm::Receiver& receiver) {
    if (!goes || came) return false;
    const comm::Label label = message_from(GetParam().source);
    const std::vector<std::byte> body(GetParam().is_large ? large : 8);
    if (!GetParam().is_large) {
      receiver.frame(0, label, body);
    } else if (receiver.large_begin(0, label, body.size()) != nullptr) {
      receiver.large_end(0, label, body.size(), true);
    }
    came = true;
    return true;
  };
  bool received = false;
  const Report report = process.run([&] {
    goes = true;
    while (!GetParam().is_awaited && !came) this_task::yield();
    static_cast<void>(receive());
    received = true;
  });
  expect_nonsense(report, GetParam().is_large ? "a large frame that is no message for here"
                                              : "a message that is not for here, or not from there");
  EXPECT_FALSE(received);
}

INSTANTIATE_TEST_SUITE_P(Frames, MessageOfNoCell,
                         testing::Values(NoCell{"awaited", 2, false, true}, NoCell{"through_a_ring", 2, false, false},
                                         NoCell{"large_awaited", 2, true, true}, NoCell{"large", 2, true, false},
                                         NoCell{"far_behind", 0x1'ffff, false, true},
                                         NoCell{"of_our_own", 1, false, true}),
                         [](const testing::TestParamInfo<NoCell>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace aplib
