// SPDX-License-Identifier: MIT
// Frames of collectives between processes: invalid ones are refused, whoever sent them.
#include "cell/collectives.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "det/explore.hpp"
#include "machines.hpp"

namespace aplib {

/// The layout of a frame.
struct ExchangeAccess {
  using Head = Exchange::Head;
  using Part = Exchange::WirePart;
};

namespace {

using testing_support::error_text;
using Head = ExchangeAccess::Head;
using Part = ExchangeAccess::Part;

struct Outbox : Network {
  std::vector<std::vector<std::byte>> frames;

  void flush() noexcept override {}
  void send(TaskControl&, const char*, std::uint32_t, std::uint32_t, std::uint64_t,
            std::span<const std::byte>) override {}
  void send_empty(std::uint32_t, std::uint32_t, std::uint64_t) override {}
  void put(TaskControl&, const char*, const one_sided::Copy&, bool) override {}
  void get(TaskControl&, const char*, const one_sided::Copy&) override {}
  std::uint64_t fetch(TaskControl&, const char*, const one_sided::Operation&) override { return 0; }
  bool poll() override { return true; }
  void poll_if_due() override {}
  bool begin_wait() noexcept override { return false; }
  void wait(std::optional<std::chrono::nanoseconds>) noexcept override {}
  void end_wait() noexcept override {}
  void wake() noexcept override {}
  void stirred() noexcept override {}
  void cell_ended(std::uint32_t, const CellEnd&) override {}
  void all_ended() noexcept override {}
  void send_exchange(std::uint32_t, std::span<const std::byte> frame) override {
    frames.emplace_back(frame.begin(), frame.end());
  }
  std::uint64_t own_status() const noexcept override { return 0; }
  void other_status(std::uint32_t, std::uint64_t) noexcept override {}
};

constexpr std::uint32_t cells = 4096;

/// Process 0 of two, with cell 0; the other has all others.
struct Side {
  Domain domain;
  Outbox network;
  Exchange exchange;
  CollectiveCall call;

  Side() : exchange(domain, domain.all, 0, {0, 1}, 0) {
    domain.network = &network;
    domain.cell_count = cells;
    domain.grid = {cells, 1};
    const std::uint32_t counts[] = {1, cells - 1};
    domain.cell_map = CellMap::consecutive(counts);
    domain.all.count = cells;
    domain.all.local = {0};
    domain.all.exchange = &exchange;
    call.call = "reduce";
    call.kind = CollectiveKind::reduce;
    call.combine = {ReduceOp::sum, NumberType::int32, false};
  }
  ~Side() { domain.network = nullptr; }

  Head head() const {
    Head head{};
    head.scope = static_cast<std::uint32_t>(Scope::all);
    head.signature = call.signature();
    head.kind = static_cast<std::uint8_t>(call.kind);
    head.op = static_cast<std::uint8_t>(call.combine.op);
    head.type = static_cast<std::uint8_t>(call.combine.type);
    std::memcpy(head.call, "reduce", sizeof "reduce");
    return head;
  }
  void begin() {
    const Fold::Part mine{0, 0, Operand::of(std::int32_t{1})};
    exchange.begin(0, call, 0, false, {&mine, 1}, {});
  }
  /// What happens to a frame with these parts.
  std::string receive(Head head, const std::vector<Part>& parts, std::size_t more = 0) {
    head.parts = static_cast<std::uint16_t>(parts.size());
    std::vector<std::byte> frame(sizeof head + parts.size() * sizeof(Part) + more);
    std::memcpy(frame.data(), &head, sizeof head);
    if (!parts.empty()) std::memcpy(frame.data() + sizeof head, parts.data(), parts.size() * sizeof(Part));
    return error_text([&] { exchange.receive(frame); });
  }
};

std::vector<Part> right_parts() {
  std::vector<Part> parts;
  for (std::uint32_t level = 0; (1U << level) < cells; ++level) parts.push_back({1, 1U << level, level, 0, 1});
  return parts;
}

TEST(ExchangeFrames, ThatMakeSenseComplete) {
  Side side;
  side.begin();
  ASSERT_EQ(side.network.frames.size(), 1U);
  EXPECT_EQ(side.receive(side.head(), right_parts()), "(no error)");
  EXPECT_EQ(side.domain.all.done.load(), 1U);
  EXPECT_EQ(side.domain.all.result[0].as<std::int32_t>(), 13);
}

// These have no gaps but are no nodes of the tree. They never merge, and a Fold has no room for so many.
TEST(ExchangeFrames, WhosePartsAreNoNodesOfTheTreeAreRefused) {
  Side side;
  side.begin();
  std::vector<Part> parts;
  for (std::uint32_t first = 1, level = 1; first < cells; first += 1U << level, level ^= 1U)
    parts.push_back({0, first, level, 0, 1});
  EXPECT_EQ(side.receive(side.head(), parts), "a frame of a collective makes no sense: a part of it");
  EXPECT_EQ(side.domain.all.done.load(), 0U);
}

TEST(ExchangeFrames, WithAnyFieldOutOfItsRangeAreRefused) {
  const std::vector<std::pair<const char*, std::function<void(Head&, std::vector<Part>&)>>> changes{
      {"what it says was called", [](Head& head, auto&) { head.kind = 3; }},
      {"what it says was called", [](Head& head, auto&) { head.op = 6; }},
      {"what it says was called", [](Head& head, auto&) { head.type = 200; }},
      {"the name of what was called", [](Head& head, auto&) { std::memset(head.call, 'x', sizeof head.call); }},
      {"bytes of a broadcast without one", [](Head& head, auto&) { head.has_payload = 1; }},
      {"it is not of this time", [](Head& head, auto&) { head.episode = 2; }},
      {"it is not of this time", [](Head& head, auto&) { head.episode = std::uint64_t{1} << 32; }},
      {"its step", [](Head& head, auto&) { head.step = 1; }},
      {"its step", [](Head& head, auto&) { head.step = 40; }},
      {"its length", [](Head& head, auto&) { head.statuses = 1; }},
      {"a part of it", [](Head&, auto& parts) { parts[3].first = cells; }},
      {"a part of it", [](Head&, auto& parts) { parts[3].level = 32; }},
      {"a part of it", [](Head&, auto& parts) { parts[3].level = ~0U; }},
      {"a part of it", [](Head&, auto& parts) { parts[3].place = 0; }},
      {"a part of it", [](Head&, auto& parts) { parts[3].place = 2; }},
      {"its parts leave a gap", [](Head&, auto& parts) { parts.erase(parts.begin() + 3); }},
      {"its parts leave a gap", [](Head&, auto& parts) { parts.push_back(parts[3]); }},
      {"its parts do not cover the group", [](Head&, auto& parts) { parts.pop_back(); }},
  };
  for (const auto& [why, change] : changes) {
    Side side;
    side.begin();
    Head head = side.head();
    std::vector<Part> parts = right_parts();
    change(head, parts);
    EXPECT_EQ(side.receive(head, parts), std::string("a frame of a collective makes no sense: ") + why);
    EXPECT_EQ(side.domain.all.done.load(), 0U) << why;
  }
  Side side;
  side.begin();
  EXPECT_EQ(side.receive(side.head(), right_parts(), 8), "a frame of a collective makes no sense: its length");
}

// ---------------------------------------------------------------- several processes, every order of events

/// The processes of one machine, on a thread each. Frames between two processes stay in order. Frames are delayed: the
/// seed chooses which of the waiting frames is taken next.
template <int Processes>
struct ExchangeScenario {
  static constexpr int thread_count = Processes;
  static constexpr std::uint64_t episodes = 5;
  static constexpr std::uint32_t processes = Processes;

  struct Post : Outbox {
    ExchangeScenario* all = nullptr;
    std::uint32_t self = 0;
    void send_exchange(std::uint32_t process, std::span<const std::byte> frame) override {
      all->wires[self][process].emplace_back(frame.begin(), frame.end());
    }
  };
  struct Member {
    Domain domain;
    Post post;
    std::unique_ptr<Exchange> exchange;
  };

  ExchangeScenario() {
    const std::vector<std::uint32_t> counts(processes, 2);
    std::vector<std::uint32_t> places(processes);
    for (std::uint32_t p = 0; p < processes; ++p) places[p] = p;
    for (std::uint32_t p = 0; p < processes; ++p) {
      Member& member = members[p];
      member.post.all = this;
      member.post.self = p;
      member.domain.network = &member.post;
      member.domain.process = p;
      member.domain.cell_count = 2 * processes;
      member.domain.grid = {2 * processes, 1};
      member.domain.cell_map = CellMap::consecutive(counts);
      member.domain.all.count = 2 * processes;
      member.domain.all.local = {2 * p, 2 * p + 1};
      member.exchange = std::make_unique<Exchange>(member.domain, member.domain.all, 0, places, p);
      member.domain.all.exchange = member.exchange.get();
    }
  }
  ~ExchangeScenario() {
    for (Member& member : members) member.domain.network = nullptr;
  }

  /// A barrier, a sum and a broadcast in turn; the root changes.
  static CollectiveCall call_of(std::uint64_t episode) {
    CollectiveCall call;
    call.call = "call";
    call.kind = static_cast<CollectiveKind>(episode % 3);
    call.combine = {ReduceOp::sum, NumberType::float64, false};
    if (call.kind == CollectiveKind::broadcast) {
      call.bytes = 8;
      call.root = static_cast<std::uint32_t>(episode * 3 % (2 * processes));
    }
    return call;
  }
  static double value_of(std::uint64_t episode, std::uint32_t cell) {
    return 1.0 / static_cast<double>(1 + cell + episode);
  }

  void begin(std::uint32_t self, std::uint64_t episode) {
    const CollectiveCall call = call_of(episode);
    Pieces pieces(call.combine);
    if (call.kind != CollectiveKind::broadcast) {
      for (const std::uint32_t cell : members[self].domain.all.local)
        pieces.push(cell, Operand::of(value_of(episode, cell)));
    }
    shown[self] = episode * 1000 + 17;
    const bool root = call.kind == CollectiveKind::broadcast && call.root / 2 == self;
    const auto payload = root ? std::as_bytes(std::span(&shown[self], 1)) : std::span<const std::byte>();
    members[self].exchange->begin(episode, call, 2 * self, false, pieces.parts(), payload);
  }

  /// Takes one frame, if there is one.
  bool take(std::uint32_t self) {
    const auto first = static_cast<std::uint32_t>(det::Scheduler::current()->random(processes));
    for (std::uint32_t i = 0; i < processes; ++i) {
      auto& wire = wires[(first + i) % processes][self];
      if (wire.empty()) continue;
      const std::vector<std::byte> frame = std::move(wire.front());
      wire.erase(wire.begin());
      const std::string problem = error_text([&] { members[self].exchange->receive(frame); });
      det::check(problem == "(no error)", "a frame that a process sends makes sense to the others");
      return true;
    }
    return false;
  }

  void thread(int number) {
    const auto self = static_cast<std::uint32_t>(number);
    const Group& group = members[self].domain.all;
    for (std::uint64_t episode = 0; episode < episodes; ++episode) {
      while (det::Scheduler::current()->random(3) == 0) pause(self);
      begin(self, episode);
      while (group.done.load() <= episode) pause(self);
      const CollectiveCall call = call_of(episode);
      det::check(!group.mismatch[episode % 2], "all make the same call");
      if (call.kind == CollectiveKind::broadcast) {
        if (call.root / 2 != self) {
          const auto got = members[self].exchange->payload(episode);
          const std::uint64_t wanted = episode * 1000 + 17;
          det::check(got.size() == 8 && std::memcmp(got.data(), &wanted, 8) == 0, "the root's bytes are everywhere");
        }
      } else {
        Fold fold(call.combine);
        for (std::uint32_t cell = 0; cell < 2 * processes; ++cell)
          fold.push(cell, 0, Operand::of(value_of(episode, cell)));
        det::check(group.result[episode % 2].bits == fold.finish().bits, "the same bits everywhere");
      }
    }
    while (!over()) pause(self);  // all frames that the others wait for have been sent; ours may still come
  }
  void pause(std::uint32_t self) {
    static_cast<void>(turn.load());  // lets others run
    if (det::Scheduler::current()->random(2) == 0 && take(self)) return;
    det::yield();
  }
  bool over() {
    for (const Member& member : members) {
      if (member.domain.all.done.load() < episodes) return false;
    }
    return true;
  }

  Member members[Processes];
  std::vector<std::vector<std::byte>> wires[Processes][Processes];
  std::uint64_t shown[Processes] = {};
  det::DetAtomic<int> turn{0};
};

TEST(ExchangeFrames, CompleteEveryCollectiveUnderEverySeed) {
  const std::uint64_t seeds = testing_support::scaled(10'000, 20, 10);
  const det::Exploration how{.memory = det::Memory::interleaving};
  const det::Outcome two = det::explore<ExchangeScenario<2>>(seeds, how);
  EXPECT_TRUE(two.ok) << two.failure;
  const det::Outcome three = det::explore<ExchangeScenario<3>>(seeds, how);
  EXPECT_TRUE(three.ok) << three.failure;
  const det::Outcome five = det::explore<ExchangeScenario<5>>(seeds / 4, how);
  EXPECT_TRUE(five.ok) << five.failure;
}

}  // namespace
}  // namespace aplib
