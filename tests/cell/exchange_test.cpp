// SPDX-License-Identifier: MIT
// Frames of collectives between processes: what makes no sense is refused, whoever has sent it.
#include "cell/exchange.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "aplib/error.hpp"
#include "cell/domain.hpp"
#include "cell/network.hpp"
#include "cell/processor.hpp"
#include "machines.hpp"

namespace aplib {

/// The form of a frame.
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
  /// What becomes of a frame with these parts.
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

// Without gaps, but no nodes of the tree: they never merge, and there are more of them than a Fold has room for.
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

}  // namespace
}  // namespace aplib
