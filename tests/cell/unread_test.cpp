// SPDX-License-Identifier: MIT
// Messages that wait to be received take a bounded share of memory: senders that outrun their receivers wait, nobody
// who stays under the limit ever does, and where no message is received any more an error says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cell/processor.hpp"
#include "det/explore.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr std::int64_t mib = 1 << 20;

Domain& domain() { return Processor::current()->domain(); }

Options limited(const Shape& shape, const char* send_wait = "60s") {
  Options options = options_of(shape);
  options.set("unread-limit", "1m");
  options.set("send-wait", send_wait);
  return options;
}

/// Lets the other tasks of the thread run until `done`, and other threads.
template <class Done>
void wait_until(Done done) {
  while (!done()) this_task::yield();
}

class Unread : public testing::TestWithParam<Shape> {};

// Cell 0 sends as fast as it can; cell 1 begins to receive when the limit is reached. Without a limit that moment
// never comes: all wait at once.
TEST_P(Unread, ASenderThatOutrunsItsReceiverWaits) {
  for (const std::int64_t bytes : {8, 1000, 40'000}) {
    const std::int64_t under_way = MessageRing::entry_count * bytes;  // in the ring, besides those that wait
    const std::uint64_t count = static_cast<std::uint64_t>((12 * mib + under_way) / (bytes + 256));
    std::atomic<std::uint64_t> sent{0};
    std::int64_t most = 0;
    Machine machine(limited(GetParam()));
    const Report report = machine.run([&] {
      std::vector<std::uint64_t> body(static_cast<std::size_t>(bytes) / 8);
      if (me() == 0) {
        for (std::uint64_t i = 0; i < count; ++i) {
          body[0] = i;
          send(cell(1), body);
          sent.store(i + 1, std::memory_order_relaxed);
        }
        return;
      }
      wait_until([&] { return domain().send_gate.closed() || sent.load(std::memory_order_relaxed) == count; });
      EXPECT_LT(sent.load(std::memory_order_relaxed), count);
      for (std::uint64_t i = 0; i < count; ++i) {
        most = std::max(most, domain().unread_bytes());
        const Message message = receive({.cell = cell(0)});
        ASSERT_EQ(message.span<std::uint64_t>()[0], i);
      }
    });
    EXPECT_EQ(report.exit_status, 0) << report.reason;
    EXPECT_GT(most, mib / 2);
    EXPECT_LT(most, 3 * mib + under_way);  // the limit, and what each processor may add before it counts again
  }
}

TEST_P(Unread, WhereNothingIsReceivedAnErrorSaysSo) {
  Machine machine(limited(GetParam(), "100ms"));
  std::string text;
  const Report report = machine.run([&] {
    if (me() == 0) {
      text = error_text([] {
        while (true) send(cell(1), 1);
      });
      send(cell(1), 2, {.type = 1});  // would end like the others, if nobody waited for it or had received
    } else {
      static_cast<void>(receive({.type = 1}));
    }
  });
  EXPECT_TRUE(text.starts_with("cell 0 task 0: send: ")) << text;
  EXPECT_NE(
      text.find(" MiB of messages wait in this process to be received, and none has been for 100ms; let cell 1 and "
                "others receive more often"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("unread-limit (APLIB_UNREAD_LIMIT)"), std::string::npos) << text;
  EXPECT_TRUE(report.exit_status == 0 || report.reason.find("unread-limit") != std::string::npos) << report.reason;
}

// Programs that count on messages being kept, in any order, never wait while these fit.
TEST_P(Unread, WhoStaysUnderTheLimitNeverWaits) {
  Machine machine(limited(GetParam(), "100ms"));
  const Report report = machine.run([] {
    constexpr int count = 2000;
    const CellId other = cell(1 - me());
    for (int type = 0; type < count; ++type) send(other, type, {.type = type});
    for (int type = count; type-- > 0;) EXPECT_EQ(receive({.type = type}).as<int>(), type);
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

INSTANTIATE_TEST_SUITE_P(, Unread, testing::Values(Shape{{2, 1}, 1}, Shape{{2, 1}, 2}), shape_name);

// A task that waits for another message than those that fill the memory gets it also at the limit, where its processor
// is the sender's.
TEST(UnreadLimit, AMessageThatIsAwaitedHereArrives) {
  Machine machine(limited({{3, 1}, 1}, "20s"));
  const Report report = machine.run([] {
    if (me() == 0) {
      while (!domain().send_gate.closed()) send(cell(1), 1);
      send(cell(1), 2, {.type = 1});
    } else if (me() == 1) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(receive({.type = 1}).as<int>(), 2);
      EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
    }
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

// A task at the limit leaves its thread to others: one of them is the receiver's helper.
TEST(UnreadLimit, WhoWaitsForRoomLeavesTheThreadToOthers) {
  Machine machine(limited({{2, 1}, 2}));
  std::atomic<bool> go{false};
  const Report report = machine.run([&] {
    if (me() == 0) {
      Task helper = spawn([&] {
        wait_until([] { return domain().send_gate.closed(); });
        go = true;
      });
      for (int i = 0; i < 20'000; ++i) send(cell(1), i);
      helper.join();
    } else {
      while (!go) this_task::yield();
      for (int i = 0; i < 20'000; ++i) ASSERT_EQ(receive().as<int>(), i);
    }
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

// What did not fit into the ring goes out with the next message, once the receiver has taken some: a sender that never
// waits never looks at its rings otherwise.
TEST(UnreadLimit, TheBacklogGoesOutWithTheNextMessage) {
  constexpr std::uint32_t ring = MessageRing::entry_count;
  constexpr int count = 3 * ring;
  std::atomic<bool> go{false};
  std::atomic<int> received{0};
  run_well({{2, 1}, 2}, [&] {
    if (me() == 0) {
      send(cell(1), -1);  // the ring is made
      for (int i = 0; i < count; ++i) send(cell(1), i);
      Outbound& outbound = Processor::current()->outbound();
      const std::uint32_t before = outbound.backlog_count();
      EXPECT_GT(before, ring);
      go = true;
      while (received < static_cast<int>(ring) - 1) std::this_thread::yield();
      send(cell(1), count);
      EXPECT_LT(outbound.backlog_count(), before - ring / 2);
    } else {
      EXPECT_EQ(receive().as<int>(), -1);
      while (!go) std::this_thread::yield();  // without a call, so nothing is taken
      for (int i = 0; i <= count; ++i) {
        ASSERT_EQ(receive().as<int>(), i);
        ++received;
      }
    }
  });
}

// Two processors fill their mailboxes, one empties them; a sender that finds the gate closed counts again. Under any
// schedule the sum stays near the limit, and all get through.
struct GateScenario {
  static constexpr int thread_count = 3;
  static constexpr std::int64_t limit = 64;
  static constexpr int per_sender = 100;
  static constexpr std::int64_t most = 2 * limit + thread_count;

  /// Never too high: what is taken is read last.
  [[nodiscard]] std::int64_t sum() const {
    const std::int64_t added = meters[0].bytes() + meters[1].bytes();
    return added + meters[2].bytes();
  }

  void thread(int me) {
    if (me == 2) {
      for (int taken = 0; taken < 2 * per_sender;) {
        if (sum() > 0) {
          det::check(!meters[2].add(-1), "less is no reason to count");
          ++taken;
        } else {
          det::yield();
        }
      }
      return;
    }
    for (int i = 0; i < per_sender; ++i) {
      while (gate.closed() && !gate.judge(sum(), limit)) det::yield();
      if (meters[me].add(1)) {
        const std::int64_t now = sum();
        gate.judge(now, limit);
        meters[me].look_again_after(unread_step(now, limit, 3));
      }
      det::check(sum() <= most, "the sum stays near the limit");
    }
  }

  UnreadMeter<det::DetAtomic> meters[3];
  SendGate<det::DetAtomic> gate;
};

TEST(UnreadLimit, HoldsUnderAnySchedule) {
  const det::Outcome outcome = det::explore_with(testing_support::scaled(2000, 4, 1),
                                                 {.memory = det::Memory::interleaving, .step_count_max = 1'000'000},
                                                 [] { return std::make_unique<GateScenario>(); });
  EXPECT_TRUE(outcome.ok) << outcome.failure;
}

}  // namespace
}  // namespace aplib
