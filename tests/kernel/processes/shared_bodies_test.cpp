// SPDX-License-Identifier: MIT
// Large messages between processes of one host, whose bodies stay in the sender's memory: they bring what was sent,
// live as long as their Message, and go another way where that memory is full or cannot be had.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/aplib.hpp"
#include "base/sanitizer.hpp"
#include "comm/kind.hpp"
#include "kernel/mailbox.hpp"
#include "kernel/module_network.hpp"
#include "kernel/shared_bodies.hpp"
#include "kind_net.hpp"
#include "loop/loop_net.hpp"
#include "machines.hpp"
#include "memory/mapping.hpp"
#include "processes.hpp"

namespace aplib {
namespace {

using testing_support::cell;
using testing_support::me;
using testing_support::Processes;
using testing_support::ProcessesOutcome;
using testing_support::same_bytes;

constexpr std::size_t large = 100'000;
constexpr std::size_t bytes_max = std::size_t{20} << 20;
constexpr std::uint32_t from_max = 10'000;

bool is_shared(const Message& message) {
  const auto place = reinterpret_cast<std::uintptr_t>(message.data());
  bool is = false;
  for_each_mapping([&](const Mapping& mapping) {
    is = mapping.low <= place && mapping.name.find(BodyArena::name) != std::string::npos;
    return mapping.high <= place;
  });
  return is;
}

/// Numbers that begin with `from`: a part of one sequence. (To count takes seconds when it is instrumented.)
std::span<const std::uint32_t> numbers(std::size_t bytes, std::uint32_t from) {
  static const std::vector<std::uint32_t> sequence = [] {
    std::vector<std::uint32_t> made(bytes_max / sizeof from + from_max);
    std::iota(made.begin(), made.end(), 0U);
    return made;
  }();
  return std::span(sequence).subspan(from, bytes / sizeof from);
}

bool holds(const Message& message, std::size_t bytes, std::uint32_t from) {
  return same_bytes(message.bytes(), std::as_bytes(numbers(bytes, from)));
}

/// Until the processes have each other's memory. On all cells: `other` is one of another process.
void warm_up_with(CellId other) {
  for (std::uint32_t shared = 0; shared < this_machine::cell_count();) {
    send(other, numbers(large, 0));
    const bool is = is_shared(receive({.cell = other}));
    shared = reduce_sum(is ? 1U : 0U);
  }
}
/// The same on both cells of a machine of two.
void warm_up() { warm_up_with(cell(1 - me())); }

struct By {
  std::string name;
  std::unique_ptr<comm::ModuleKind> (*kind)();  ///< Null: loop.

  friend void PrintTo(const By& by, std::ostream* out) { *out << by.name; }
};

std::vector<By> modules() {
  std::vector<By> all{{"loop", nullptr}};
  // ThreadSanitizer does not know that both processes, which are in one here, map the same memory.
  if (!APLIB_TSAN) all.push_back({"shm", comm::shm_kind});
  return all;
}

class SharedBodiesOver : public testing::TestWithParam<By> {
 protected:
  /// On processes with so many cells each.
  static void run(const std::vector<std::uint32_t>& cells, std::uint32_t threads,
                  const std::function<void()>& program) {
    Processes processes({std::accumulate(cells.begin(), cells.end(), 0U), 1}, cells, threads,
                        {.delay_polls_max = 2, .shares_host = true});
    if (GetParam().kind != nullptr) {
      const std::unique_ptr<comm::ModuleKind> kind = GetParam().kind();
      comm::test::KindNet net(*kind, static_cast<std::uint32_t>(cells.size()));
      for (comm::Peer process = 0; process < cells.size(); ++process) processes.modules.push_back(net.module(process));
    }
    const ProcessesOutcome outcome = processes.run(program);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.failure(), "");
    EXPECT_TRUE(outcome.over);
  }
};

TEST_P(SharedBodiesOver, LargeMessagesBringWhatWasSent) {
  run({2, 1, 2}, 2, [] {
    const std::uint32_t cells = this_machine::cell_count();
    for (std::uint32_t round = 0; round < 20; ++round) {
      for (std::uint32_t to = 0; to < cells; ++to)
        send(cell(to), numbers(1000 + round * 7001, me() + round), {.type = static_cast<std::int32_t>(round)});
      for (std::uint32_t from = 0; from < cells; ++from) {
        const Message message = receive({.cell = cell(from), .type = static_cast<std::int32_t>(round)});
        ASSERT_TRUE(holds(message, 1000 + round * 7001, from + round)) << from << " in round " << round;
      }
    }
  });
}

TEST_P(SharedBodiesOver, TheBodyStaysInItsSendersMemory) {
  run({1, 1}, 1, [] {
    const CellId other = cell(1 - me());
    warm_up();
    for (const std::size_t bytes : {SharedBodies::from_bytes, large, std::size_t{1} << 20, bytes_max}) {
      send(other, numbers(bytes, me()));
      const Message message = receive({.cell = other});
      EXPECT_TRUE(is_shared(message)) << bytes;
      ASSERT_TRUE(holds(message, bytes, 1 - me())) << bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(message.data()) % 16, 0U);
    }
    send(other, numbers(SharedBodies::from_bytes - 4, 0));
    EXPECT_FALSE(is_shared(receive({.cell = other}))) << "small ones are not worth it";
  });
}

TEST_P(SharedBodiesOver, ABodyThatWasGivenBackIsUsedAgain) {
  run({1, 1}, 1, [] {
    const CellId other = cell(1 - me());
    warm_up();
    const void* place = nullptr;
    for (int round = 0; round < 200; ++round) {
      if (me() == 0) send(other, numbers(large, 7));
      Message message = receive({.cell = other});
      if (me() == 1) {
        EXPECT_TRUE(place == nullptr || place == message.data()) << round;
        place = message.data();
        message = Message{};
        send(other, 1);
      }
    }
  });
}

// All are kept until all have come: more than the memory for bodies holds.
TEST_P(SharedBodiesOver, TenThousandInFlightBothWays) {
  run({1, 1}, 1, [] {
    constexpr std::size_t bytes = 17'000;
    const auto count = static_cast<std::uint32_t>(testing_support::scaled(10'000, 2, 1));
    static_assert(5'000 * BodyArena::unit_bytes > BodyArena::bytes);
    const CellId other = cell(1 - me());
    warm_up();
    for (std::uint32_t i = 0; i < count; ++i) send(other, numbers(bytes, i + me()));
    std::vector<Message> kept;
    for (std::uint32_t i = 0; i < count; ++i) kept.push_back(receive({.cell = other}));
    std::uint32_t shared = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(holds(kept[i], bytes, i + 1 - me())) << i;
      if (i % 100 == 0 && is_shared(kept[i])) ++shared;
    }
    EXPECT_GT(shared, 0U);
    EXPECT_LT(shared, count / 100) << "it was never full";
    kept.clear();
    barrier();
    send(other, numbers(bytes, 5));
    EXPECT_TRUE(is_shared(receive({.cell = other}))) << "all were given back";
  });
}

TEST_P(SharedBodiesOver, AWaitingBufferGetsTheBytes) {
  run({1, 1}, 2, [] {
    const CellId other = cell(1 - me());
    warm_up();
    std::vector<std::uint32_t> buffer(large / sizeof(std::uint32_t) + 10);
    for (std::uint32_t round = 0; round < 50; ++round) {
      if (me() == 0) {
        static_cast<void>(receive({.type = 1}));  // the other waits, or is about to
        send(other, numbers(large, round), {.type = 2});
      } else {
        send(other, round, {.type = 1});
        ASSERT_EQ(receive_into(buffer, {.type = 2}).bytes, large);
        ASSERT_TRUE(same_bytes(std::as_bytes(std::span(buffer)).first(large), std::as_bytes(numbers(large, round))))
            << "in round " << round;
      }
    }
  });
}

// They come in parts, which go straight to a receive that waits for them with room for all.
TEST_P(SharedBodiesOver, MessagesOfMpiBringWhatWasSent) {
  run({2, 2}, 2, [] {
    constexpr api::Mailbox mailbox{TaskId{0}, api::Space::mpi};
    const CellId other = cell((me() + 2) % 4);
    const bool sends_first = me() < 2;
    warm_up_with(other);
    for (const std::size_t bytes :
         {SharedBodies::from_bytes, large, std::size_t{300'000}, std::size_t{1} << 20, bytes_max}) {
      for (const std::size_t room : {bytes, bytes + 4096, bytes / 2}) {
        std::vector<std::uint32_t> buffer(room / sizeof(std::uint32_t));
        std::uint32_t small = 0;
        const auto both = [&](bool is_sender) {
          if (is_sender) {
            api::send("send", mailbox, {other, 1, 5}, std::as_bytes(numbers(bytes, me())));
            return api::send("send", mailbox, {other, 1, 5}, std::as_bytes(std::span(&small, 1)));
          }
          const auto arrived =
              api::receive("receive", mailbox, std::as_writable_bytes(std::span(buffer)), {other, 1, {}});
          EXPECT_EQ(arrived->bytes, bytes / sizeof small * sizeof small);
          const auto next =
              api::receive("receive", mailbox, std::as_writable_bytes(std::span(&small, 1)), {other, 1, {}});
          EXPECT_EQ(next->bytes, sizeof small) << "they come in order";
        };
        both(sends_first);
        both(!sends_first);
        const std::size_t got = std::min(room, bytes) / sizeof small * sizeof small;
        ASSERT_TRUE(same_bytes(std::as_bytes(std::span(buffer)).first(got),
                               std::as_bytes(numbers(bytes, (me() + 2) % 4)).first(got)))
            << bytes << " into " << room;
      }
    }
  });
}

TEST_P(SharedBodiesOver, MessagesOfMpiThatNobodyWaitsForAreKept) {
  run({1, 1}, 1, [] {
    constexpr api::Mailbox mailbox{TaskId{0}, api::Space::mpi};
    const CellId other = cell(1 - me());
    warm_up();
    for (std::uint32_t i = 0; i < 20; ++i)
      api::send("send", mailbox, {other, 1, i}, std::as_bytes(numbers(large, i + me())));
    barrier();
    std::vector<std::uint32_t> buffer(large / sizeof(std::uint32_t));
    for (std::uint32_t i = 20; i-- > 0;) {
      const auto arrived = api::receive("receive", mailbox, std::as_writable_bytes(std::span(buffer)), {other, 1, i});
      EXPECT_EQ(arrived->bytes, large);
      ASSERT_TRUE(same_bytes(std::as_bytes(std::span(buffer)), std::as_bytes(numbers(large, i + 1 - me()))));
    }
  });
}

// A cell that moves to another thread gives back there what it got before.
TEST_P(SharedBodiesOver, CellsThatMoveGiveBackWhatTheyHold) {
  run({1, 4}, 2, [] {
    constexpr int rounds = 40;
    constexpr std::size_t bytes = 40'000;
    if (me() == 0) {
      for (int round = 0; round < rounds; ++round) {
        for (std::uint32_t to = 1; to < 5; ++to) send(cell(to), numbers(bytes, to + static_cast<std::uint32_t>(round)));
      }
      for (std::uint32_t to = 1; to < 5; ++to) static_cast<void>(receive({.cell = cell(to)}));
      return;
    }
    std::vector<Message> kept;
    for (int round = 0; round < rounds; ++round) {
      kept.push_back(receive({.cell = cell(0)}));
      // Unequal work makes cells move.
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(me() < 3 ? 2000 : 50);
      while (std::chrono::steady_clock::now() < until) this_task::yield();
      if (kept.size() > 3) {
        ASSERT_TRUE(holds(kept.front(), bytes, me() + static_cast<std::uint32_t>(round) - 3));
        kept.erase(kept.begin());
      }
    }
    send(cell(0), 1);
  });
}

TEST_P(SharedBodiesOver, MessagesOutliveTheMachine) {
  std::vector<Message> kept;
  run({1, 1}, 1, [&] {
    warm_up();
    if (me() == 0) {
      for (std::uint32_t i = 0; i < 10; ++i) send(cell(1), numbers(large, i));
    } else {
      for (std::uint32_t i = 0; i < 10; ++i) kept.push_back(receive({.cell = cell(0)}));
    }
  });
  ASSERT_EQ(kept.size(), 10U);
  for (std::uint32_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(is_shared(kept[i]));
    EXPECT_TRUE(holds(kept[i], large, i));
  }
  std::thread([&] { kept.resize(5); }).join();
  kept.clear();
}

INSTANTIATE_TEST_SUITE_P(Module, SharedBodiesOver, testing::ValuesIn(modules()),
                         [](const testing::TestParamInfo<By>& info) { return info.param.name; });

TEST(SharedBodies, TheHostProgramTakesPart) {
  Processes processes({2, 1}, std::vector<std::uint32_t>{1, 1}, 1, {.shares_host = true});
  constexpr std::uint32_t rounds = 20;
  const auto program = [] {
    for (std::uint32_t round = 0; round < rounds; ++round) {
      ASSERT_TRUE(holds(receive({.cell = this_machine::host_cell()}), large, round));
      send(this_machine::host_cell(), numbers(large, round + me()));
    }
  };
  const ProcessesOutcome outcome = processes.run_host(program, [&] {
    this_machine::start_cells(program);
    bool shared = false;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      for (std::uint32_t c = 0; c < 2; ++c) send(cell(c), numbers(large, round));
      for (std::uint32_t c = 0; c < 2; ++c) {
        const Message message = receive({.cell = cell(c)});
        EXPECT_TRUE(holds(message, large, round + c));
        shared |= is_shared(message);
      }
    }
    EXPECT_TRUE(shared);
    this_machine::wait_cells();
    return 0;
  });
  EXPECT_EQ(outcome.failure(), "");
}

// ---------------------------------------------------------------- peers that break their word

/// The other process of a machine of two, which says what the test wants.
class Other final : public comm::Receiver {
 public:
  bool wants(comm::Peer) override { return true; }
  void frame(comm::Peer, const comm::Label& label, std::span<const std::byte> body) override {
    if (on_frame) on_frame(static_cast<FrameKind>(label.kind), body);
  }
  std::byte* large_begin(comm::Peer, const comm::Label&, std::size_t bytes) override {
    large_.resize(bytes);
    return large_.data();
  }
  void large_end(comm::Peer, const comm::Label&, std::size_t, bool) override {}
  void peer_lost(comm::Peer, const std::string&) override {}

  std::function<void(FrameKind, std::span<const std::byte>)> on_frame;

 private:
  std::vector<std::byte> large_;
};

class NoLauncher final : public Supervisor {
 public:
  bool ready() override { return true; }
  void send_note(std::span<const std::byte>) override {}
};

/// Runs `program` on cell 0, in a process whose only peer is `other`. `begin` sends its first frames.
Report run_beside(Other& other, comm::loop::LoopNet& net, comm::Module& theirs, const std::function<void()>& program,
                  const std::function<void()>& begin) {
  Machine machine(testing_support::options_of({{2, 1}, 1}));
  const std::unique_ptr<comm::Module> ours = net.module(0);
  NoLauncher launcher;
  theirs.start(other);
  std::atomic<bool> over{false};
  std::thread peer([&] {
    begin();
    while (!over.load()) {
      theirs.poll();
      theirs.wait(std::chrono::milliseconds(1));
    }
  });
  const Report report = run_process(
      machine, program,
      Process{0, CellMap::consecutive(std::array<std::uint32_t, 2>{1, 1}), {"ws0", "ws1"}, ours.get(), &launcher},
      false, {});
  over = true;
  peer.join();
  return report;
}

template <class Body>
std::span<const std::byte> as_bytes(const Body& body) {
  return std::as_bytes(std::span(&body, 1));
}

comm::Label label_of(FrameKind kind, std::uint32_t by = 1) {
  return {.key = MatchKey::make(0, by, 0, 0), .cell = 0, .task = 0, .kind = static_cast<std::uint32_t>(kind)};
}

struct Lie {
  const char* name;
  std::vector<SharedPlace> messages;  ///< After its arena's place.
  const char* why;
  std::uint32_t places = 1;
  std::uint32_t by = 1;
  bool answers = false;

  friend void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }
};

std::vector<Lie> lies() {
  constexpr const char* nowhere = "a message in memory that is not there, or not for here";
  return {
      {"before_its_place", {{1, large}}, nowhere, 0},
      {"in_the_links", {{0, large}}, nowhere},
      {"behind_the_end", {{BodyArena::unit_count, large}}, nowhere},
      {"far_behind", {{~std::uint64_t{0}, large}}, nowhere},
      {"beyond_32_bits", {{std::uint64_t{1} << 32 | 1, large}}, nowhere},
      {"across_the_end", {{BodyArena::unit_count - 1, large}}, nowhere},
      {"of_any_length", {{1, ~std::uint64_t{0}}}, nowhere},
      {"too_small", {{1, 8}}, nowhere},
      {"of_our_own_cell", {{1, large}}, nowhere, 1, 0},
      {"of_no_cell", {{1, large}}, nowhere, 1, 77},
      {"two_places", {}, "a second place of its arena, or none", 2},
      {"an_answer_to_nothing", {}, "an answer to what was not asked", 0, 1, true},
  };
}

class SharedBodiesLie : public testing::TestWithParam<Lie> {};

TEST_P(SharedBodiesLie, EndsTheMachineWithItsReason) {
  const Lie& lie = GetParam();
  comm::loop::LoopNet net(2, {.shares_host = true});
  Other other;  // outlives its module
  const std::unique_ptr<comm::Module> theirs = net.module(1);
  const std::unique_ptr<LendingArena> arena = LendingArena::make();
  const Report report = run_beside(
      other, net, *theirs, [] { static_cast<void>(receive({.type = 1})); },
      [&] {
        const SharedFilePlace place = *arena->place();
        for (std::uint32_t i = 0; i < lie.places; ++i)
          theirs->send(0, label_of(FrameKind::arena_place), as_bytes(place));
        for (const SharedPlace& message : lie.messages)
          theirs->send(0, label_of(FrameKind::shared_message, lie.by), as_bytes(message));
        if (lie.answers) theirs->send(0, label_of(FrameKind::arena_answer), {});
      });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::peer_lost));
  EXPECT_NE(report.reason.find("a frame from ws1 makes no sense: "), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find(lie.why), std::string::npos) << report.reason;
}

INSTANTIATE_TEST_SUITE_P(Frames, SharedBodiesLie, testing::ValuesIn(lies()),
                         [](const testing::TestParamInfo<Lie>& info) { return std::string(info.param.name); });

class SharedBodiesPartsLie : public testing::TestWithParam<std::vector<std::pair<FrameKind, SharedPlace>>> {};

// While a receive waits with a buffer of its own.
TEST_P(SharedBodiesPartsLie, EndsTheMachineWithItsReason) {
  comm::loop::LoopNet net(2, {.shares_host = true});
  Other other;  // outlives its module
  const std::unique_ptr<comm::Module> theirs = net.module(1);
  const std::unique_ptr<LendingArena> arena = LendingArena::make();
  other.on_frame = [&](FrameKind kind, std::span<const std::byte>) {
    if (kind != FrameKind::message) return;
    const SharedFilePlace place = *arena->place();
    theirs->send(0, label_of(FrameKind::arena_place), as_bytes(place));
    for (const auto& [kind, message] : GetParam()) theirs->send(0, label_of(kind), as_bytes(message));
  };
  const Report report = run_beside(
      other, net, *theirs,
      [] {
        const Task tells = spawn([] {
          this_task::yield();  // until the receive below waits
          send(cell(1), 1);
          static_cast<void>(receive());  // what unwinds lets the other go, as the launcher would
        });
        std::vector<std::byte> buffer(large);
        receive_into(buffer, {.cell = cell(1)});
      },
      [] {});
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::peer_lost));
  EXPECT_NE(report.reason.find("a frame from ws1 makes no sense: "), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find(" part"), std::string::npos) << report.reason;
}

constexpr std::uint64_t some = SharedBodies::from_bytes;
INSTANTIATE_TEST_SUITE_P(
    Frames, SharedBodiesPartsLie,
    testing::Values(std::vector<std::pair<FrameKind, SharedPlace>>{{FrameKind::shared_begin, {1, large}},
                                                                   {FrameKind::shared_begin, {1, large}}},
                    std::vector<std::pair<FrameKind, SharedPlace>>{{FrameKind::shared_begin, {1, large}},
                                                                   {FrameKind::shared_part, {1, large + 1}}},
                    std::vector<std::pair<FrameKind, SharedPlace>>{{FrameKind::shared_begin, {1, large}},
                                                                   {FrameKind::shared_part, {1, 2 * some}},
                                                                   {FrameKind::shared_part, {1, some}}},
                    std::vector<std::pair<FrameKind, SharedPlace>>{{FrameKind::shared_begin, {1, large}},
                                                                   {FrameKind::shared_message, {1, 2 * some}}}));

// Its user may not open our memory, say: then messages go as before.
TEST(SharedBodies, WhereThePeerCannotMapThemMessagesGoAsFrames) {
  comm::loop::LoopNet net(2, {.shares_host = true});
  Other other;  // outlives its module
  const std::unique_ptr<comm::Module> theirs = net.module(1);
  int places = 0;
  other.on_frame = [&](FrameKind kind, std::span<const std::byte>) {
    EXPECT_NE(kind, FrameKind::shared_message);
    if (kind != FrameKind::arena_place) return;
    ++places;
    theirs->send(0, label_of(FrameKind::arena_answer), {});  // extra is 0: no
    const int done = 1;
    theirs->send(0, label_of(FrameKind::message), as_bytes(done));
  };
  bool sent = false;
  const Report report = run_beside(
      other, net, *theirs,
      [&] {
        send(cell(1), numbers(large, 0));
        static_cast<void>(receive());  // its answer came before
        for (int i = 0; i < 20; ++i) send(cell(1), numbers(large, 0));
        sent = true;
        throw std::runtime_error("enough");
      },
      [] {});
  EXPECT_TRUE(sent);
  EXPECT_EQ(places, 1);
  EXPECT_NE(report.reason.find("enough"), std::string::npos) << report.reason;
}

TEST(SharedBodies, WhatWasNotLentCannotBeGivenBack) {
  comm::loop::LoopNet net(2, {.shares_host = true});
  Other other;  // outlives its module
  const std::unique_ptr<comm::Module> theirs = net.module(1);
  std::unique_ptr<BodyArena> arena;
  other.on_frame = [&](FrameKind kind, std::span<const std::byte> body) {
    if (kind != FrameKind::arena_place) return;
    SharedFilePlace place;
    ASSERT_EQ(body.size(), sizeof place);
    std::memcpy(&place, body.data(), sizeof place);
    arena = BodyArena::open(place);
    ASSERT_NE(arena, nullptr);
    arena->give_back(4000);
    comm::Label answer = label_of(FrameKind::arena_answer);
    answer.extra = 1;
    theirs->send(0, answer, {});
  };
  const Report report = run_beside(
      other, net, *theirs,
      [] {
        while (true) {
          send(cell(1), numbers(large, 0));
          this_task::yield();
        }
      },
      [] {});
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::peer_lost));
  EXPECT_NE(report.reason.find("gives back the body of a message that it was not lent"), std::string::npos)
      << report.reason;
}

}  // namespace
}  // namespace aplib
