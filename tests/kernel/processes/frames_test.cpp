// SPDX-License-Identifier: MIT
// Frames of a peer that are nearly right: each that is not ends the machine with its reason, and none is used.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "aplib/aplib.hpp"
#include "cell/matching.hpp"
#include "fed_module.hpp"
#include "machines.hpp"
#include "memory/slot.hpp"

namespace aplib {
namespace {

using testing_support::FedProcess;

constexpr std::size_t large_frame = std::size_t{1} << 20;

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
    const std::vector<std::byte> body(GetParam().is_large ? large_frame : 8);
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

/// What happens to a large frame of a collective, of which the head alone comes.
struct LargeExchange {
  bool is_refused = false;
  std::uint64_t grown_bytes = 0;  ///< Of memory, by that alone.
  Report report;
};

LargeExchange begin_large_exchange(std::uint32_t scope, std::uint32_t index, std::size_t bytes) {
  LargeExchange outcome;
  FedProcess process;
  std::atomic<bool> goes{false};
  std::atomic<bool> came{false};
  process.module.feed = [&](comm::Receiver& receiver) {
    if (!goes || came) return false;
    comm::Label label;
    label.kind = static_cast<std::uint32_t>(FrameKind::exchange);
    label.cell = index;
    label.extra = scope;
    const std::uint64_t before = testing_support::resident_bytes();
    outcome.is_refused = receiver.large_begin(0, label, bytes) == nullptr;
    const std::uint64_t now = testing_support::resident_bytes();
    outcome.grown_bytes = now > before ? now - before : 0;
    came = true;
    return true;
  };
  outcome.report = process.run([&] {
    goes = true;
    while (!came) this_task::yield();
    if (outcome.is_refused) static_cast<void>(receive());  // the machine stops
  });
  return outcome;
}

TEST(LargeCollectiveFrames, OfGroupsThatAreNotHereAreRefused) {
  // Too much to allocate, so that an error says so where it is tried.
  constexpr std::size_t bytes = std::size_t{1} << 50;
  constexpr auto row = static_cast<std::uint32_t>(Scope::row);
  constexpr auto column = static_cast<std::uint32_t>(Scope::column);
  constexpr auto all = static_cast<std::uint32_t>(Scope::all);
  // The machine has one row of two cells, and so no column with cells elsewhere.
  for (const auto& [scope, index] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {all, 1}, {row, 1}, {column, 0}, {column, 1}, {77, 0}, {~0U, 0}, {0x100 + all, 0}}) {
    const LargeExchange outcome = begin_large_exchange(scope, index, bytes);
    EXPECT_TRUE(outcome.is_refused);
    expect_nonsense(outcome.report, "a collective of cells that are not here");
  }
}

TEST(LargeCollectiveFrames, TakeNoMemoryBeforeTheirBytesCome) {
  constexpr std::size_t bytes = std::size_t{512} << 20;
  const LargeExchange outcome = begin_large_exchange(static_cast<std::uint32_t>(Scope::all), 0, bytes);
  EXPECT_FALSE(outcome.is_refused);
  EXPECT_LT(outcome.grown_bytes, bytes / 2);
  EXPECT_EQ(outcome.report.exit_status, 0) << outcome.report.reason;
}

// ---------------------------------------------------------------- answers

struct WrongAnswer {
  const char* name;
  FrameKind kind;
  std::uint32_t cell;
  std::uint32_t landed;  ///< So many data frames have been carried out.
  const char* why;

  friend void PrintTo(const WrongAnswer& answer, std::ostream* out) { *out << answer.name; }
};

class Answers : public testing::TestWithParam<WrongAnswer> {};

// Cell 1 has put once, and asked for an acknowledgement: one data frame.
TEST_P(Answers, ThatCannotBeEndTheMachineWithTheirReason) {
  FedProcess process;
  std::atomic<bool> has_asked{false};
  process.module.sent = [&](comm::Peer, const comm::Label& label, std::span<const std::byte>) {
    if (label.kind == static_cast<std::uint32_t>(FrameKind::put)) has_asked = true;
  };
  process.module.feed = [&](comm::Receiver& receiver) {
    if (!has_asked.exchange(false)) return false;
    comm::Label label;
    label.kind = static_cast<std::uint32_t>(GetParam().kind);
    label.cell = GetParam().cell;
    label.task = GetParam().landed;
    receiver.frame(0, label, {});
    receiver.frame(0, label, {});  // the second one is wrong in any case
    return true;
  };
  const Report report = process.run([&] {
    const auto place = make_symmetric<int>();
    put(CellId{0}, 7, place.get(), {.acknowledge = true});
    static_cast<void>(receive());
  });
  expect_nonsense(report, GetParam().why);
}

INSTANTIATE_TEST_SUITE_P(
    Frames, Answers,
    testing::Values(WrongAnswer{"twice", FrameKind::put_landed, 1, 1, "an acknowledgement that nobody asked for"},
                    WrongAnswer{"counts_too_many", FrameKind::put_landed, 1, 2, "an acknowledgement that nobody"},
                    WrongAnswer{"counts_backwards", FrameKind::put_landed, 1, ~0U, "an acknowledgement that nobody"},
                    WrongAnswer{"of_another_kind", FrameKind::carried_out, 1, 1, "a note that nobody asked for"}),
    [](const testing::TestParamInfo<WrongAnswer>& info) { return std::string(info.param.name); });

/// `early`: while other processes of the machine are not ready yet; else while a cell runs.
void put_flag_that_is_not_there(std::uint32_t word, bool early) {
  FedProcess process;
  std::atomic<bool> goes{false};
  process.module.feed = [&](comm::Receiver& receiver) {
    if (!goes) return false;
    comm::Label label;
    label.kind = static_cast<std::uint32_t>(FrameKind::put);
    label.cell = 1;
    label.task = word;
    receiver.frame(0, label, {});
    return true;
  };
  if (early) {
    process.awaits_others = [&] {
      goes = true;
      while (true) ::pause();
    };
  }
  static_cast<void>(process.run([&] {
    goes = true;
    static_cast<void>(receive());
  }));
  std::exit(0);
}

class FlagOfAPut : public testing::TestWithParam<bool> {};

TEST_P(FlagOfAPut, ThatIsNotThereIsNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  constexpr std::uint64_t offset = SlotPlan::bytes / 2;  // of memory that no cell has here
  const std::uint32_t word = offset / sizeof(std::int32_t) + 1;
  // A sanitizer's handler, which gets the signal after ours, may end the process in another way.
  EXPECT_EXIT(
      put_flag_that_is_not_there(word, GetParam()), [](int status) { return !testing::ExitedWithCode(0)(status); },
      fmt::format("cell 0: the flag of a put: SIGSEGV.*at address {0:#x}, in the 4 bytes from {0:#x} of cell 1,",
                  SlotPlan::at(1) + offset));
}

INSTANTIATE_TEST_SUITE_P(Frames, FlagOfAPut, testing::Bool(), [](const testing::TestParamInfo<bool>& info) {
  return std::string(info.param ? "before_others_are_ready" : "while_cells_run");
});

}  // namespace
}  // namespace aplib
