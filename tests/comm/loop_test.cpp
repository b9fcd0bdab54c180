// SPDX-License-Identifier: MIT
// LoopNet beyond the promises of modules: its faults, and runs that a seed repeats.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "checks.hpp"
#include "loop/loop_net.hpp"

namespace aplib::comm {
namespace {

using testing_support::test_seed;

/// Records every upcall of every process in one text, in order.
class Scribe final : public Receiver {
 public:
  Scribe(Peer self, std::string& text) : self_(self), text_(text) {}

  bool wants(Peer /*from*/) override { return true; }
  void frame(Peer from, const Label& label, std::span<const std::byte> body) override {
    write("f", from, label.key, body.size());
    ++frames;
  }
  std::byte* large_begin(Peer from, const Label& label, std::size_t bytes) override {
    write("b", from, label.key, bytes);
    memory_[from].resize(bytes);
    return memory_[from].data();
  }
  void large_end(Peer from, const Label& label, std::size_t /*bytes*/, bool complete) override {
    write(complete ? "e" : "x", from, label.key, 0);
    if (complete) ++frames;
  }
  void peer_lost(Peer peer, const std::string& why) override {
    write("l", peer, 0, 0);
    this->why = why;
    ++lost;
  }
  void memory_done(std::uint64_t context, bool ok) override {
    write(ok ? "d" : "n", self_, context, 0);
    ++transfers;
  }

  std::uint64_t frames = 0;
  std::uint64_t lost = 0;
  std::uint64_t transfers = 0;
  std::string why;

 private:
  void write(const char* what, Peer from, std::uint64_t key, std::size_t bytes) {
    text_ += what + std::to_string(from) + ">" + std::to_string(self_) + " " + std::to_string(key) + " " +
             std::to_string(bytes) + "\n";
  }

  Peer self_;
  std::string& text_;
  std::array<std::vector<std::byte>, 8> memory_;
};

struct Cluster {
  explicit Cluster(std::uint32_t count, const loop::LoopFaults& faults = {}, std::uint64_t seed = 1)
      : net(count, faults, seed) {
    for (Peer peer = 0; peer < count; ++peer) {
      scribes.push_back(std::make_unique<Scribe>(peer, text));
      modules.push_back(net.module(peer));
      modules.back()->start(*scribes.back());
    }
  }
  void send(Peer from, Peer to, std::uint64_t key, std::size_t bytes) {
    modules[from]->send(to, {key, 0, 0, 0, 0}, std::vector<std::byte>(bytes));
  }
  void poll(int times = 1) {
    for (; times != 0; --times) {
      for (const std::unique_ptr<Module>& module : modules) module->poll();
    }
  }
  void settle() {
    while (!net.quiet()) poll();
  }

  loop::LoopNet net;
  std::string text;
  std::vector<std::unique_ptr<Scribe>> scribes;
  std::vector<std::unique_ptr<Module>> modules;
};

constexpr loop::LoopFaults awkward{.delay_polls_max = 6,
                                   .shuffle_peers = true,
                                   .piece_bytes_max = 30'000,
                                   .capacity_bytes = 40'000,
                                   .hold_back_bytes = 64};

/// A run of five processes with frames, writes and reads, deaths, cuts and stops, on one thread. Returns everything
/// that arrived, in order.
std::string simulate(std::uint64_t seed) {
  constexpr Peer count = 5;
  std::vector<std::array<std::byte, 500>> memory(count);
  std::array<std::array<MemoryKey, count>, count> keys;  // To the first process's memory, for the second.
  Cluster cluster(count, awkward, seed);
  for (Peer peer = 0; peer < count; ++peer) {
    for (Peer to = 0; to < count; ++to) {
      if (to != peer) keys[peer][to] = cluster.modules[peer]->expose(to, memory[peer]);
    }
  }
  std::mt19937_64 random(seed);
  for (std::uint64_t step = 0; step < 400; ++step) {
    const auto from = static_cast<Peer>(random() % count);
    const auto to = static_cast<Peer>((from + 1 + random() % (count - 1)) % count);
    cluster.send(from, to, step, random() % 10 == 0 ? random() % 100'000 : random() % 200);
    const auto address = reinterpret_cast<std::uintptr_t>(memory[to].data());
    const std::span<std::byte> own = std::span(memory[from]).first(random() % 500);
    if (step % 3 == 1) cluster.modules[from]->write(to, keys[to][from], address, own, step);
    if (step % 3 == 2) cluster.modules[from]->read(to, keys[to][from], address, own, step);
    cluster.modules[random() % count]->poll();
    const std::uint64_t event = random() % 400;
    if (event == 0) cluster.net.kill(from);
    if (event == 1) cluster.net.cut(from, to);
    if (event == 2) cluster.net.corrupt(from, to);
    if (event == 3) cluster.net.freeze(from);
    if (event >= 4 && event < 20) cluster.net.thaw(from);
  }
  for (Peer peer = 0; peer < count; ++peer) cluster.net.thaw(peer);
  cluster.settle();
  return std::move(cluster.text);
}

TEST(LoopTest, OneSeedOneRun) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  int different = 0;
  std::string run = simulate(test_seed());
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(run, simulate(test_seed() + i)) << "seed " << test_seed() + i;
    std::string next = simulate(test_seed() + i + 1);
    if (run != next) ++different;
    run = std::move(next);
  }
  EXPECT_EQ(different, 20);
}

TEST(LoopTest, FramesOfOthersOvertake) {
  // Process 1 always sends before process 2. Delays and shuffled polls sometimes bring the later frame first.
  Cluster cluster(3, {.delay_polls_max = 8, .shuffle_peers = true}, test_seed());
  for (std::uint64_t i = 0; i < 100; ++i) {
    cluster.send(1, 0, i, 8);
    cluster.send(2, 0, i, 8);
    cluster.settle();
  }
  int overtaken = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::string frame = " " + std::to_string(i) + " 8\n";
    const std::size_t one = cluster.text.find("f1>0" + frame);
    const std::size_t other = cluster.text.find("f2>0" + frame);
    ASSERT_NE(one, std::string::npos);
    ASSERT_NE(other, std::string::npos);
    overtaken += other < one ? 1 : 0;
  }
  EXPECT_GT(overtaken, 10);
  EXPECT_LT(overtaken, 90);
}

TEST(LoopTest, WritesAndFramesOvertakeEachOther) {
  // Frames sent before a write may come before or after it; those sent after it never come before it. Two writes happen
  // in any order, and can be seen in part.
  constexpr std::size_t bytes = 16;
  int late = 0;
  int early = 0;
  int second_first = 0;
  int torn = 0;
  const std::vector<std::byte> ones(bytes, std::byte{1});
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::vector<std::byte> memory(2 * bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    Cluster cluster(2, {.delay_polls_max = 6, .piece_bytes_max = 60}, test_seed() + i);
    const MemoryKey key = cluster.modules[1]->expose(0, memory);
    const auto ones_in = [&](std::size_t from) {
      return std::count(memory.begin() + static_cast<std::ptrdiff_t>(from),
                        memory.begin() + static_cast<std::ptrdiff_t>(from + bytes), std::byte{1});
    };
    cluster.send(0, 1, 1, 8);
    cluster.modules[0]->write(1, key, address, ones, 1);
    cluster.modules[0]->write(1, key, address + bytes, ones, 2);
    bool torn_here = false;
    bool second_here = false;
    while (cluster.scribes[1]->frames == 0) {
      cluster.poll();
      torn_here |= ones_in(0) % bytes != 0;
      second_here |= ones_in(0) == 0 && ones_in(bytes) == bytes;
    }
    torn += torn_here ? 1 : 0;
    second_first += second_here ? 1 : 0;
    (ones_in(0) == bytes ? early : late) += 1;
    cluster.send(0, 1, 2, 8);
    while (cluster.scribes[1]->frames == 1) cluster.poll();
    EXPECT_EQ(ones_in(0) + ones_in(bytes), 2 * bytes) << "seed " << test_seed() + i;
    while (cluster.scribes[0]->transfers != 2) cluster.poll();
    EXPECT_TRUE(cluster.net.quiet());
  }
  EXPECT_GT(late, 10);
  EXPECT_GT(early, 10);
  EXPECT_GT(second_first, 5);
  EXPECT_GT(torn, 10);
}

TEST(LoopTest, ConcealedInTheMiddle) {
  // However much of a write had arrived, nothing more arrives once conceal() has returned, and the writer is told.
  for (std::uint64_t i = 0; i < 50; ++i) {
    std::vector<std::byte> memory(5'000);
    Cluster cluster(2, {.delay_polls_max = 2, .piece_bytes_max = 100}, test_seed() + i);
    const MemoryKey key = cluster.modules[1]->expose(0, memory);
    const std::vector<std::byte> ones(memory.size(), std::byte{1});
    cluster.modules[0]->write(1, key, reinterpret_cast<std::uintptr_t>(memory.data()), ones, 1);
    cluster.poll(3);
    cluster.modules[1]->conceal(0, key);
    const std::vector<std::byte> then = memory;
    cluster.settle();
    EXPECT_EQ(memory, then);
    EXPECT_NE(cluster.text.find("n0>0 1 0\n"), std::string::npos);
  }
}

TEST(LoopTest, DeathEndsStreamsAnywhere) {
  // One large frame is on its way. Over many seeds it arrives whole, in part, or not at all.
  int whole = 0;
  int broken = 0;
  int none = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    Cluster cluster(2, {}, test_seed() + i);
    cluster.send(0, 1, 1, i % 2 == 0 ? 20'000 : 1);
    cluster.net.kill(0);
    cluster.settle();
    EXPECT_EQ(cluster.scribes[1]->lost, 1U);
    EXPECT_EQ(cluster.scribes[1]->why, "connection reset by peer");
    if (cluster.scribes[1]->frames == 1) {
      ++whole;
    } else if (cluster.text.find('x') != std::string::npos) {
      ++broken;
    } else {
      ++none;
    }
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(broken, 10);
  EXPECT_GT(none, 10);
}

TEST(LoopTest, TheDeadSayNothing) {
  Cluster cluster(3);
  cluster.net.kill(0);
  cluster.send(0, 1, 1, 10);
  cluster.send(1, 0, 2, 10);
  cluster.poll(3);
  EXPECT_EQ(cluster.scribes[0]->frames + cluster.scribes[0]->lost, 0U);
  EXPECT_EQ(cluster.scribes[1]->frames, 0U);
  EXPECT_EQ(cluster.scribes[1]->lost + cluster.scribes[2]->lost, 2U);
  EXPECT_TRUE(cluster.net.quiet());
}

TEST(LoopTest, CutLinksLoseTwo) {
  Cluster cluster(3);
  cluster.net.cut(0, 1);
  cluster.send(0, 2, 1, 10);
  cluster.send(2, 1, 2, 10);
  cluster.send(0, 1, 3, 10);
  cluster.settle();
  EXPECT_EQ(cluster.scribes[0]->lost, 1U);
  EXPECT_EQ(cluster.scribes[1]->lost, 1U);
  EXPECT_EQ(cluster.scribes[2]->lost, 0U);
  EXPECT_EQ(cluster.scribes[1]->frames, 1U);
  EXPECT_EQ(cluster.scribes[2]->frames, 1U);
}

TEST(LoopTest, DamageIsNamed) {
  Cluster cluster(2);
  cluster.net.corrupt(0, 1);
  cluster.send(0, 1, 1, 10);
  cluster.settle();
  EXPECT_NE(cluster.scribes[1]->why.find("frame"), std::string::npos) << cluster.scribes[1]->why;
  EXPECT_EQ(cluster.scribes[0]->why, "the connection was ended by the other side");
}

TEST(LoopTest, TheFrozenComeBack) {
  Cluster cluster(2);
  cluster.net.freeze(0);
  cluster.send(0, 1, 1, 10);
  cluster.send(1, 0, 2, 10);
  cluster.poll(5);
  EXPECT_EQ(cluster.text, "");
  EXPECT_GT(cluster.modules[0]->queued(1), 0U);
  cluster.net.thaw(0);
  cluster.settle();
  EXPECT_EQ(cluster.scribes[0]->frames + cluster.scribes[1]->frames, 2U);
}

TEST(LoopTest, NarrowWaysQueue) {
  Cluster cluster(2, {.capacity_bytes = 1'000});
  cluster.send(0, 1, 1, 10'000);
  EXPECT_EQ(cluster.modules[0]->queued(1), 10'040U - 1'000U);
  EXPECT_FALSE(cluster.net.quiet());
  cluster.settle();
  EXPECT_EQ(cluster.scribes[1]->frames, 1U);
}

TEST(LoopTest, HeldBackFramesNeedAFlush) {
  Cluster cluster(2, {.hold_back_bytes = 100});
  cluster.send(0, 1, 1, 10);
  cluster.modules[1]->poll();
  EXPECT_EQ(cluster.scribes[1]->frames, 0U);
  cluster.modules[0]->flush();
  cluster.modules[1]->poll();
  EXPECT_EQ(cluster.scribes[1]->frames, 1U);
  cluster.send(0, 1, 2, 101);  // Large enough to be sent at once, together with what waits.
  cluster.modules[1]->poll();
  EXPECT_EQ(cluster.scribes[1]->frames, 2U);
}

TEST(LoopTest, LatePiecesEndTheWait) {
  Cluster cluster(2, {.delay_time_max = std::chrono::milliseconds(5)}, test_seed());
  for (std::uint64_t i = 0; i < 10; ++i) {
    cluster.send(0, 1, i, 10);
    // Without a timeout, only the end of the delay ends it.
    while (cluster.scribes[1]->frames == i) {
      if (!cluster.modules[1]->poll()) cluster.modules[1]->wait(std::nullopt);
    }
  }
}

TEST(LoopTest, FaultsStrikeRunningThreads) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  constexpr Peer count = 5;
  loop::LoopNet net(count, awkward, test_seed());
  std::atomic<bool> over{false};
  std::array<std::string, count> texts;
  std::array<std::unique_ptr<Scribe>, count> scribes;
  std::array<std::unique_ptr<Module>, count> modules;
  for (Peer self = 0; self < count; ++self) {
    scribes[self] = std::make_unique<Scribe>(self, texts[self]);
    modules[self] = net.module(self);
    modules[self]->start(*scribes[self]);
  }
  std::vector<std::thread> threads;
  for (Peer self = 0; self < count; ++self) {
    threads.emplace_back([&, self] {
      std::mt19937_64 random(test_seed() + self);
      const std::vector<std::byte> body(30'000);
      for (std::uint64_t i = 0; !over.load(); ++i) {
        const auto to = static_cast<Peer>((self + 1 + random() % (count - 1)) % count);
        const std::size_t bytes = i % 10 == 0 ? random() % body.size() : random() % 100;
        // Polls more than it sends, so that little is queued.
        if (modules[self]->queued(to) < 100'000) modules[self]->send(to, {i, 0, 0, 0, 0}, std::span(body).first(bytes));
        if (!modules[self]->poll() && i % 100 == 0) modules[self]->wait(std::chrono::microseconds(100));
        modules[self]->poll();
      }
    });
  }
  std::mt19937_64 random(test_seed());
  const auto strike = [&](std::uint64_t event) {
    const auto one = static_cast<Peer>(random() % count);
    const auto other = static_cast<Peer>((one + 1 + random() % (count - 1)) % count);
    if (event < 10) net.freeze(one);
    if (event >= 10 && event < 40) net.thaw(one);
    if (event == 40) net.corrupt(one, other);
    if (event == 41) net.cut(one, other);
    if (event == 42) net.kill(one);
    std::this_thread::yield();
  };
  for (int i = 0; i < 1'000; ++i) strike(random() % 200);
  for (Peer self = 0; self < count; ++self) net.kill(self);
  over.store(true);
  for (const std::unique_ptr<Module>& module : modules) module->wake();
  for (std::thread& thread : threads) thread.join();
  for (Peer self = 0; self < count; ++self) EXPECT_LT(scribes[self]->lost, count) << texts[self];
}

TEST(LoopTest, WrongCallsAreErrors) {
  EXPECT_THROW(loop::LoopNet(0), Error);
  EXPECT_THROW(loop::LoopNet(2, {.capacity_bytes = 0}), Error);
  Cluster cluster(2);
  EXPECT_THROW((void)cluster.net.module(0), Error);
  EXPECT_THROW((void)cluster.net.module(2), Error);
  EXPECT_THROW(cluster.net.kill(2), Error);
  EXPECT_THROW(cluster.send(0, 0, 1, 1), Error);
  EXPECT_THROW(cluster.send(0, 2, 1, 1), Error);
  EXPECT_THROW(cluster.modules[0]->start(*cluster.scribes[0]), Error);
}

TEST(LoopTest, ModulesOutliveTheirNet) {
  std::string text;
  Scribe scribe(1, text);
  std::unique_ptr<Module> one;
  std::unique_ptr<Module> other;
  {
    loop::LoopNet net(2);
    one = net.module(0);
    other = net.module(1);
  }
  Scribe sender(0, text);
  one->start(sender);
  other->start(scribe);
  one->send(1, {}, {});
  other->poll();
  EXPECT_EQ(scribe.frames, 1U);
  other.reset();
  one.reset();
}

}  // namespace
}  // namespace aplib::comm
