// SPDX-License-Identifier: MIT
// A broken or hostile peer: its one-sided frames are checked, and nothing is written where it must not be.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "aplib/aplib.hpp"
#include "kernel/module_network.hpp"
#include "kernel/one_sided_network.hpp"
#include "kernel/process.hpp"
#include "loop/loop_net.hpp"
#include "machines.hpp"
#include "module_around.hpp"
#include "processes.hpp"

namespace aplib {
namespace {

class NoOverseer final : public Supervisor {
 public:
  bool ready() override { return true; }
  void send_note(std::span<const std::byte>) override {}
};

class Quiet final : public comm::Receiver {
 public:
  bool wants(comm::Peer) override { return true; }
  void frame(comm::Peer, const comm::Label&, std::span<const std::byte>) override {}
  std::byte* large_begin(comm::Peer, const comm::Label&, std::size_t) override { return nullptr; }
  void large_end(comm::Peer, const comm::Label&, std::size_t, bool) override {}
  void peer_lost(comm::Peer, const std::string&) override {}
};

struct Hostile {
  const char* name;
  FrameKind kind;
  comm::Label label;
  std::vector<std::byte> body;
  const char* why;

  friend void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }
};

// Cell 0 is the process under test, cell 1 the peer.
constexpr std::uint64_t slot0 = SlotPlan::base;

comm::Label label(std::uint64_t key, std::uint32_t cell = 0, std::uint32_t task = 0, std::uint32_t by = 1) {
  return {.key = key, .cell = cell, .task = task, .kind = 0, .extra = by};
}

template <class Body>
std::vector<std::byte> bytes_of(const Body& body) {
  std::vector<std::byte> bytes(sizeof body);
  std::memcpy(bytes.data(), &body, sizeof body);
  return bytes;
}

std::vector<Hostile> all() {
  const std::vector<std::byte> eight(8);
  const std::vector<std::byte> large(100'000);
  const std::uint64_t end = slot0 + SlotPlan::bytes;
  constexpr const char* outside = "a put or get outside the cell's memory";
  constexpr const char* elsewhere = "a put or get that is not for here, or not from there";
  return {
      {"put_below", FrameKind::put, label(slot0 - 8), eight, outside},
      {"put_above", FrameKind::put, label(end - 4), eight, outside},
      {"put_of_much_above", FrameKind::put, label(end - 50'000), large, outside},
      {"put_to_zero", FrameKind::put, label(0), eight, outside},
      {"put_flag_above", FrameKind::put, label(0, 0, OneSidedFrame::flag_words + 1), {}, outside},
      {"put_to_itself", FrameKind::put, label(slot0, 1), eight, elsewhere},
      {"put_to_nobody", FrameKind::put, label(slot0, 4711), eight, elsewhere},
      {"put_of_our_own", FrameKind::put, label(slot0, 0, 0, 0), eight, elsewhere},
      {"put_of_nobody", FrameKind::put, label(slot0, 0, 0, 77), eight, elsewhere},
      {"large_put_of_nobody", FrameKind::put, label(slot0, 0, 0, 77), large, elsewhere},
      {"blocks_without_head", FrameKind::put_blocks, label(slot0), eight, "a put of another length"},
      {"blocks_of_other_length", FrameKind::put_blocks, label(slot0), bytes_of(BlocksHead{8, 2, 8}),
       "a put of another length"},
      {"blocks_that_overflow", FrameKind::put_blocks, label(slot0), bytes_of(BlocksHead{std::uint64_t{1} << 63, 2, 8}),
       "a put of another length"},
      {"get_of_too_much", FrameKind::get, label(slot0), bytes_of(GetRequest{{SlotPlan::bytes + 1, 1, 0}, 0}), outside},
      {"get_that_overflows", FrameKind::get, label(slot0),
       bytes_of(GetRequest{{std::uint64_t{1} << 40, std::uint64_t{1} << 40, 1}, 0}), "a get of another length"},
      {"get_with_strides_outside", FrameKind::get, label(slot0), bytes_of(GetRequest{{8, 8, -64}, 0}), outside},
      {"get_without_a_body", FrameKind::get, label(slot0), {}, "a get of another length"},
      {"fetch_of_three_bytes", FrameKind::fetch, label(slot0), bytes_of(FetchRequest{0, 0, 0, 0, 3}),
       "an atomic operation of an unknown kind"},
      {"fetch_of_what", FrameKind::fetch, label(slot0), bytes_of(FetchRequest{0, 0, 0, 99, 8}),
       "an atomic operation of an unknown kind"},
      {"fetch_unaligned", FrameKind::fetch, label(slot0 + 4), bytes_of(FetchRequest{0, 0, 0, 0, 8}),
       "an atomic operation of an unknown kind"},
      {"fetch_outside", FrameKind::fetch, label(end), bytes_of(FetchRequest{0, 0, 0, 0, 8}), outside},
      {"reply_to_nothing", FrameKind::reply, label(0), eight, "a reply that nobody waits for"},
      {"large_reply_to_nothing", FrameKind::reply, label(~0ULL), large, "a reply that nobody waits for"},
      {"landed_for_nobody", FrameKind::put_landed, label(0, 12), {}, "an acknowledgement that is not for here"},
      {"landed_unasked", FrameKind::put_landed, label(0), {}, "an acknowledgement that nobody asked for"},
      {"carried_out_unasked", FrameKind::carried_out, label(0), {}, "a note that nobody asked for"},
      {"memory_outside", FrameKind::memory_request, label(end + 5), {}, outside},
      {"key_of_nothing", FrameKind::memory_key, label(slot0), eight, "a key to memory that is not its own"},
      {"heap_outside", FrameKind::heap_request, label(end + 5), {}, outside},
      {"heap_of_nobody", FrameKind::heap_request, label(slot0, 0, 0, 77), {}, elsewhere},
      {"heap_not_asked_for", FrameKind::heap_place, label(slot0), bytes_of(HeapPlace{}), "a heap that was not asked"},
      {"heap_of_our_own", FrameKind::heap_place, label(slot0, 0, 0, 0), bytes_of(HeapPlace{}), "or is not its own"},
      {"heap_of_no_cell", FrameKind::heap_place, label(slot0, 0, 0, 77), {}, "or is not its own"},
      {"unknown_kind", static_cast<FrameKind>(77), label(0), {}, "its kind is 77"},
  };
}

class OneSidedHostile : public testing::TestWithParam<Hostile> {};

TEST_P(OneSidedHostile, FrameEndsTheMachineWithItsReason) {
  const Hostile& hostile = GetParam();
  Machine machine(testing_support::options_of({{2, 1}, 1}));
  comm::loop::LoopNet net(2);
  const std::unique_ptr<comm::Module> ours = net.module(0);
  const std::unique_ptr<comm::Module> theirs = net.module(1);
  NoOverseer overseer;
  Quiet quiet;
  theirs->start(quiet);
  const CellMap cells = CellMap::consecutive(std::array<std::uint32_t, 2>{1, 1});
  const std::vector<std::string> names{"ws0", "ws1"};
  comm::Label label = hostile.label;
  label.kind = static_cast<std::uint32_t>(hostile.kind);
  std::atomic<bool> over{false};
  std::thread peer([&] {
    theirs->send(0, label, hostile.body);
    while (!over.load()) {
      theirs->poll();
      theirs->wait(std::chrono::milliseconds(1));
    }
  });
  const Report report = run_process(machine, [] { static_cast<void>(receive()); },
                                    Process{0, cells, names, ours.get(), &overseer}, false, {});
  over = true;
  peer.join();
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::peer_lost));
  EXPECT_NE(report.reason.find("a frame from ws1 makes no sense: "), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find(hostile.why), std::string::npos) << report.reason;
}

INSTANTIATE_TEST_SUITE_P(Frames, OneSidedHostile, testing::ValuesIn(all()),
                         [](const testing::TestParamInfo<Hostile>& info) { return std::string(info.param.name); });

/// A module whose large bodies end late: it says that one ends, and goes on when it may.
class Late final : public testing_support::ModuleAround {
 public:
  using ModuleAround::ModuleAround;

  std::atomic<bool> ends{false};
  /// How long it may still write.
  std::function<void()> writes = [] {};

 private:
  void large_end(comm::Peer from, const comm::Label& label, std::size_t bytes, bool complete) override {
    if (complete) {
      ends = true;
      writes();
    }
    ModuleAround::large_end(from, label, bytes, complete);
  }
};

/// Where a get puts what it brings.
class Target {
 public:
  explicit Target(std::atomic<bool>& gone) : gone_(gone) {}
  ~Target() { gone_ = true; }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  std::array<std::byte, 20'000> bytes{};

 private:
  std::atomic<bool>& gone_;
};

TEST(OneSidedStop, NoTaskUnwindsWhileAGetWritesToItsMemory) {
  testing_support::Processes processes({4, 1}, {3, 1}, 3);
  auto late = std::make_unique<Late>(processes.net.module(0));
  Late& module = *late;
  processes.modules.push_back(std::move(late));
  processes.modules.push_back(processes.net.module(1));
  std::atomic<bool> gone{false};
  std::atomic<bool> wrote_late{false};
  module.writes = [&] {
    // The task is not to unwind before this ends, so there is nothing to wait for but time.
    for (int i = 0; i < 200 && !gone; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    wrote_late = gone.load();
  };
  const auto wait_without_calls = [&module] {
    while (!module.ends) std::this_thread::yield();
  };
  const testing_support::ProcessesOutcome outcome = processes.run([&] {
    const auto source = make_symmetric<std::byte[]>(std::tuple_size_v<decltype(Target::bytes)>);
    barrier();
    if (testing_support::me() == 0) {
      Target target(gone);
      get(CellId{3}, std::span<std::byte>(target.bytes), source.get());
      wait_without_calls();
      static_cast<void>(receive());
    } else if (testing_support::me() == 1) {
      wait_without_calls();
      throw std::runtime_error("enough");
    }
    static_cast<void>(receive());  // and poll
  });
  EXPECT_EQ(outcome.failure(), "ws0: cell 1 task 0: uncaught exception: enough");
  EXPECT_TRUE(gone);
  EXPECT_FALSE(wrote_late);
}

TEST(OneSidedRefused, AGetThatFindsNoRoomIsForgotten) {
  testing_support::Processes processes({2, 1}, {1, 1});
  processes.options.send_limit_bytes = std::size_t{1} << 20;
  processes.options.send_wait = std::chrono::milliseconds(100);
  bool went_well = false;
  const testing_support::ProcessesOutcome outcome = processes.run([&] {
    constexpr std::size_t bytes = std::size_t{1} << 20;
    const auto block = make_symmetric<std::byte[]>(bytes);
    barrier();
    if (testing_support::me() == 1) {
      static_cast<void>(receive({.type = 2}));
      return;
    }
    processes.net.freeze(1);
    const std::vector<std::byte> body(100'000);
    const auto fill = [&] {
      while (true) send(CellId{1}, std::span<const std::byte>(body), {.type = 1});
    };
    EXPECT_THROW(fill(), Error);
    // More than may be on its way, if it counted.
    for (int i = 0; i < 3; ++i)
      EXPECT_THROW(get(CellId{1}, std::span<std::byte>(block.get(), bytes), block.get()), Error);
    processes.net.thaw(1);
    Flag arrived;
    std::vector<std::byte> got(8);  // so few that a frame brings them
    while (!went_well) {
      try {
        get(CellId{1}, std::span<std::byte>(got), block.get(), {.arrived = &arrived});
        went_well = true;
      } catch (const Error&) {  // what waits goes first
      }
    }
    wait_flag(arrived, 1);
    send(CellId{1}, 0, {.type = 2});
  });
  EXPECT_EQ(outcome.failure(), "");
  EXPECT_TRUE(went_well);
}

}  // namespace
}  // namespace aplib
