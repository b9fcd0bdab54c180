// SPDX-License-Identifier: MIT
// Promises about remote memory: what is written and read, when it can be seen, and how it ends. Skipped for modules
// without it.
#include <algorithm>
#include <cstring>
#include <future>
#include <mutex>
#include <random>

#include "checks.hpp"
#include "conformance.hpp"

namespace aplib::comm::test {
namespace {

using namespace std::chrono_literals;

/// Memory that one node has opened, and the keys that others need to reach it.
struct Window {
  /// Opened to process 0, and perhaps to another.
  Window(Node& node, std::size_t bytes) : owner(node), memory(bytes), key(node.module().expose(0, memory)) {}
  ~Window() {
    owner.module().conceal(0, key);
    if (second_key.bytes != 0) owner.module().conceal(second, second_key);
  }
  void open_to(Peer peer) {
    second = peer;
    second_key = owner.module().expose(peer, memory);
  }
  [[nodiscard]] const MemoryKey& key_of(Peer peer) const { return peer == 0 ? key : second_key; }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) {
    return reinterpret_cast<std::uintptr_t>(memory.data() + offset);
  }
  [[nodiscard]] bool holds(std::size_t offset, std::span<const std::byte> right) const {
    return testing_support::same_bytes(right, std::span(memory).subspan(offset, right.size()));
  }

  Node& owner;
  std::vector<std::byte> memory;
  MemoryKey key;
  Peer second = 0;
  MemoryKey second_key;
};

// Mixtures may have it only between some processes.
#define APLIB_NEEDS_REMOTE_MEMORY()                                                  \
  for (Peer one = 0; one < processes(); ++one) {                                     \
    for (Peer other = 0; other < processes(); ++other) {                             \
      if (one != other && !node(one).module().reaches_memory(other))                 \
        GTEST_SKIP() << "needs a module with remote memory between these processes"; \
    }                                                                                \
  }                                                                                  \
  static_assert(true)

TEST_P(Conformance, BothOrNeitherReachMemory) {
  make(2);
  EXPECT_EQ(node(0).module().reaches_memory(1), node(1).module().reaches_memory(0));
}

TEST_P(Conformance, WritesOfAllSizes) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  constexpr std::size_t most = 3'000'017;
  Window window(node(1), most + 200);
  std::uint64_t context = 100;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{64},
                                  std::size_t{1'000}, std::size_t{4'096}, std::size_t{65'537}, most}) {
    std::memset(window.memory.data(), 0x5a, window.memory.size());
    const std::size_t offset = 64 + bytes % 13;
    node(0).module().write(1, window.key, window.address(offset), contents(bytes, bytes), ++context);
    pump([&] { return node(0).recorder().transfer(context).has_value(); });
    EXPECT_TRUE(*node(0).recorder().transfer(context));
    EXPECT_TRUE(window.holds(offset, contents(bytes, bytes))) << bytes;
    // No byte beside it has changed.
    const std::span<const std::byte> all = window.memory;
    EXPECT_TRUE(testing_support::all_bytes_are(std::byte{0x5a}, all.first(offset))) << bytes;
    EXPECT_TRUE(testing_support::all_bytes_are(std::byte{0x5a}, all.subspan(offset + bytes))) << bytes;
  }
  EXPECT_EQ(node(1).recorder().frames() + node(1).recorder().transfers(), 0U) << "the target hears nothing of it";
}

TEST_P(Conformance, ReadsOfAllSizes) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  constexpr std::size_t most = 3'000'017;
  Window window(node(1), most + 200);
  const std::span<const std::byte> there = contents(7, window.memory.size());
  std::copy(there.begin(), there.end(), window.memory.begin());
  std::uint64_t context = 0;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{63}, std::size_t{4'097},
                                  std::size_t{65'536}, most}) {
    std::vector<std::byte> here(bytes + 2, std::byte{0x5a});
    const std::size_t offset = bytes % 17;
    node(0).module().read(1, window.key, window.address(offset), {here.data() + 1, bytes}, ++context);
    pump([&] { return node(0).recorder().transfer(context).has_value(); });
    EXPECT_TRUE(*node(0).recorder().transfer(context));
    EXPECT_TRUE(testing_support::same_bytes(std::span(here).subspan(1, bytes), there.subspan(offset, bytes)));
    EXPECT_EQ(here.front(), std::byte{0x5a});
    EXPECT_EQ(here.back(), std::byte{0x5a});
  }
}

TEST_P(Conformance, FramesBehindAWriteFindIt) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  constexpr std::size_t most = 300'000;
  constexpr std::uint64_t rounds = repeated(300);
  Window window(node(1), most);
  std::mt19937_64 random(1);
  std::vector<std::size_t> sizes(rounds);
  for (std::size_t& bytes : sizes) bytes = random() % 20 == 0 ? random() % most : 8 + random() % 3'000;
  std::uint64_t found = 0;
  node(1).recorder().on_frame = [&](Peer, const Label& label, std::size_t) {
    EXPECT_TRUE(window.holds(0, contents(label.key, sizes[label.key]))) << "frame " << label.key;
    ++found;
    node(1).send(0, 8);
  };
  for (std::uint64_t i = 0; i < rounds; ++i) {
    // A small or large body after one write or several.
    node(0).module().write(1, window.key, window.address(), contents(i, sizes[i] / 2), 2 * i);
    node(0).module().write(1, window.key, window.address(sizes[i] / 2), contents(i, sizes[i]).subspan(sizes[i] / 2),
                           2 * i + 1);
    node(0).send(1, i % 10 == 0 ? 40'000 : i % 100);
    pump([&] { return found == i + 1 && node(0).recorder().frames(1) == i + 1; });
  }
  pump([&] { return node(0).recorder().transfers() == 2 * rounds; });
}

TEST_P(Conformance, ManyTransfersUnderWay) {
  make(3);
  APLIB_NEEDS_REMOTE_MEMORY();
  constexpr std::size_t slice = 5'000;
  constexpr std::uint64_t count = repeated(400);
  // Two write to disjoint halves of one window, and read from another, with frames in between.
  Window window(node(2), 2 * count * slice);
  Window source(node(2), count * slice);
  window.open_to(1);
  source.open_to(1);
  const std::span<const std::byte> there = contents(3, source.memory.size());
  std::copy(there.begin(), there.end(), source.memory.begin());
  std::vector<std::byte> here(2 * count * slice);
  for (std::uint64_t i = 0; i < count; ++i) {
    for (const Peer from : {0U, 1U}) {
      const std::size_t offset = (from * count + i) * slice;
      node(from).module().write(2, window.key_of(from), window.address(offset), contents(2 * i + from, slice), 2 * i);
      node(from).module().read(2, source.key_of(from), source.address(i * slice), {here.data() + offset, slice},
                               2 * i + 1);
      node(from).send(2, i % 7 == 0 ? 20'000 : 10);
    }
    if (i % 64 == 0) pump_times(1);
  }
  pump([&] {
    return node(0).recorder().transfers() == 2 * count && node(1).recorder().transfers() == 2 * count &&
           node(2).recorder().frames() == 2 * count;
  });
  for (const Peer from : {0U, 1U}) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::size_t offset = (from * count + i) * slice;
      EXPECT_TRUE(*node(from).recorder().transfer(2 * i) && *node(from).recorder().transfer(2 * i + 1));
      EXPECT_TRUE(window.holds(offset, contents(2 * i + from, slice))) << from << ", slice " << i;
      EXPECT_EQ(std::memcmp(here.data() + offset, source.memory.data() + i * slice, slice), 0) << i;
    }
  }
}

TEST_P(Conformance, RandomTransfersMatchAModel) {
  make(3);
  APLIB_NEEDS_REMOTE_MEMORY();
  constexpr std::size_t bytes = 50'000;
  Window window(node(2), bytes);
  window.open_to(1);
  std::vector<std::byte> model(bytes);
  std::vector<std::byte> here(bytes);
  std::mt19937_64 random(2);
  for (std::uint64_t i = 0; i < repeated(600); ++i) {
    // One after another, by either peer.
    const auto from = static_cast<Peer>(random() % 2);
    const std::size_t offset = random() % bytes;
    const std::size_t part = random() % std::min<std::size_t>(bytes - offset, random() % 10 == 0 ? bytes : 300);
    if (random() % 2 == 0) {
      const std::span<const std::byte> body = contents(i, part);
      std::copy(body.begin(), body.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
      node(from).module().write(2, window.key_of(from), window.address(offset), body, i);
      pump([&] { return node(from).recorder().transfer(i).has_value(); });
    } else {
      node(from).module().read(2, window.key_of(from), window.address(offset), {here.data(), part}, i);
      pump([&] { return node(from).recorder().transfer(i).has_value(); });
      ASSERT_TRUE(testing_support::same_bytes(std::span(here).first(part), std::span(model).subspan(offset, part)))
          << "read " << i;
    }
    ASSERT_TRUE(*node(from).recorder().transfer(i));
  }
  EXPECT_EQ(window.memory, model);
}

TEST_P(Conformance, TransfersNeedNothingOfTheTargetsReceiver) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  // It takes no frames, and its thread sleeps as a program's does.
  Window window(node(1), 500'000);
  node(1).recorder().want(0, false);
  node(0).send(1, 100);
  std::atomic<bool> over{false};
  std::thread target([&] { run(1, [&] { return over.load(); }); });
  std::vector<std::byte> here(window.memory.size());
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::size_t bytes = i % 2 == 0 ? 8 : here.size();
    node(0).module().write(1, window.key, window.address(), contents(i, bytes), 2 * i);
    run(0, [&] { return node(0).recorder().transfer(2 * i).has_value(); });
    node(0).module().read(1, window.key, window.address(), {here.data(), bytes}, 2 * i + 1);
    run(0, [&] { return node(0).recorder().transfer(2 * i + 1).has_value(); });
    EXPECT_TRUE(testing_support::same_bytes(std::span(here).first(bytes), contents(i, bytes)));
  }
  over.store(true);
  node(1).module().wake();
  target.join();
  EXPECT_EQ(node(1).recorder().frames(), 0U);
  node(1).recorder().want(0, true);
  pump([&] { return node(1).recorder().frames() == 1; });
}

TEST_P(Conformance, TransfersFromManyThreadsAndUpcalls) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  constexpr std::uint64_t count = 200;
  constexpr std::uint64_t threads = 3;
  constexpr std::size_t slice = 256;
  Window window(node(1), 2 * threads * count * slice);
  // The upcall at the end of each begins another.
  node(0).recorder().on_transfer = [&](std::uint64_t context, bool ok) {
    EXPECT_TRUE(ok);
    if (context >= threads * count) return;
    const std::uint64_t next = context + threads * count;
    node(0).module().write(1, window.key, window.address(next * slice), contents(next, slice), next);
  };
  std::vector<std::thread> writers;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    writers.emplace_back([&, thread] {
      for (std::uint64_t i = thread * count; i < (thread + 1) * count; ++i) {
        node(0).module().write(1, window.key, window.address(i * slice), contents(i, slice), i);
      }
    });
  }
  pump([&] { return node(0).recorder().transfers() == 2 * threads * count; });
  for (std::thread& writer : writers) writer.join();
  for (std::uint64_t i = 0; i < 2 * threads * count; ++i) EXPECT_TRUE(window.holds(i * slice, contents(i, slice))) << i;
}

TEST_P(Conformance, AnUpcallMayExpose) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  std::vector<std::byte> memory(10'000);
  MemoryKey key;
  node(1).recorder().on_frame = [&](Peer, const Label&, std::size_t) { key = node(1).module().expose(0, memory); };
  node(0).send(1, 10);
  pump([&] { return key.bytes != 0; });
  node(0).module().write(1, key, reinterpret_cast<std::uintptr_t>(memory.data()), contents(1, memory.size()), 1);
  pump([&] { return node(0).recorder().transfer(1).has_value(); });
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), contents(1, memory.size()).begin()));
  node(1).module().conceal(0, key);
}

TEST_P(Conformance, WhatIsNotOpenIsNotTouched) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  Window window(node(1), 10'000);
  Window other(node(1), 10'000);
  const std::vector<std::byte> before = window.memory;
  std::vector<std::byte> here(20'000);
  std::uint64_t context = 0;
  const auto fails = [&](const MemoryKey& key, std::uint64_t address, std::size_t bytes) {
    node(0).module().write(1, key, address, contents(5, bytes), ++context);
    const std::uint64_t write = context;
    node(0).module().read(1, key, address, {here.data(), bytes}, ++context);
    pump([&] { return node(0).recorder().transfer(context) && node(0).recorder().transfer(write); });
    return !*node(0).recorder().transfer(context) && !*node(0).recorder().transfer(write);
  };
  EXPECT_TRUE(fails(window.key, window.address(), 10'001)) << "too long";
  EXPECT_TRUE(fails(window.key, window.address(9'999), 2)) << "over the end";
  EXPECT_TRUE(fails(window.key, window.address() - 1, 1)) << "in front";
  EXPECT_TRUE(fails(window.key, 0, 8)) << "nowhere";
  EXPECT_TRUE(fails(window.key, ~std::uint64_t{0} - 3, 8)) << "round the end of all addresses";
  EXPECT_TRUE(fails(MemoryKey{}, window.address(), 8)) << "an empty key";
  EXPECT_TRUE(fails(other.key, window.address(), 8)) << "another's";
  EXPECT_EQ(window.memory, before);
  node(0).module().write(1, window.key, window.address(), contents(5, 10'000), ++context);
  pump([&] { return node(0).recorder().transfer(context).has_value(); });
  EXPECT_TRUE(*node(0).recorder().transfer(context)) << "the others did no harm";
}

TEST_P(Conformance, ConcealedMemoryIsSafe) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  Window window(node(1), 100'000);
  node(1).module().conceal(0, window.key);
  const std::vector<std::byte> before = window.memory;
  node(0).module().write(1, window.key, window.address(), contents(1, 100'000), 1);
  pump([&] { return node(0).recorder().transfer(1).has_value(); });
  EXPECT_FALSE(*node(0).recorder().transfer(1));
  EXPECT_EQ(window.memory, before);
}

TEST_P(Conformance, ConcealedToOneIsOpenToTheOther) {
  make(3);
  APLIB_NEEDS_REMOTE_MEMORY();
  Window window(node(2), 100);
  window.open_to(1);
  node(2).module().conceal(0, window.key);
  node(1).module().write(2, window.second_key, window.address(), contents(1, 100), 1);
  pump([&] { return node(1).recorder().transfer(1).has_value(); });
  EXPECT_TRUE(*node(1).recorder().transfer(1));
  EXPECT_TRUE(window.holds(0, contents(1, 100)));
}

TEST_P(Conformance, DeathEndsTransfers) {
  make(3);
  APLIB_NEEDS_REMOTE_MEMORY();
  auto window = std::make_unique<Window>(node(1), 8'000'000);
  Window other(node(2), 100);
  node(0).send(1, 1);
  pump([&] { return node(1).recorder().frames() == 1; });
  constexpr std::uint64_t count = repeated(20);
  for (std::uint64_t i = 0; i < count; ++i) {
    node(0).module().write(1, window->key, window->address(), contents(i, 8'000'000), i);
  }
  if (!net_->kill(1)) {
    pump([&] { return node(0).recorder().transfers() == count; });
    GTEST_SKIP() << "needs a net that can kill a process";
  }
  const std::uint64_t address = window->address();
  const MemoryKey key = window->key;
  window.reset();
  pump([&] { return node(0).recorder().lost(1) == 1 && node(0).recorder().transfers() == count; }, {0, 2});
  std::vector<std::byte> here(100);
  node(0).module().write(1, key, address, contents(1, 100), count);
  node(0).module().read(1, key, address, here, count + 1);
  node(0).module().write(2, other.key, other.address(), contents(1, 100), count + 2);
  pump([&] { return node(0).recorder().transfers() == count + 3; }, {0, 2});
  EXPECT_FALSE(*node(0).recorder().transfer(count));
  EXPECT_FALSE(*node(0).recorder().transfer(count + 1));
  EXPECT_TRUE(*node(0).recorder().transfer(count + 2));
}

TEST_P(Conformance, CloseEndsTransfers) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  Window window(node(1), 4'000'000);
  constexpr std::uint64_t count = 10;
  for (std::uint64_t i = 0; i < count; ++i) {
    node(0).module().write(1, window.key, window.address(), contents(i, 4'000'000), i);
  }
  std::future<bool> closed = std::async(std::launch::async, [&] { return node(0).close(60s); });
  pump([&] { return closed.wait_for(0s) == std::future_status::ready; }, {1});
  EXPECT_TRUE(closed.get());
  EXPECT_EQ(node(0).recorder().transfers(), count);
  for (int i = 0; i < 100; ++i) node(1).poll();
  EXPECT_EQ(node(1).recorder().lost(0), 0U);
}

TEST_P(Conformance, CloseOfTheTargetEndsTransfers) {
  make(2);
  APLIB_NEEDS_REMOTE_MEMORY();
  Window window(node(1), 1'000'000);
  node(0).send(1, 1);
  pump([&] { return node(1).recorder().frames() == 1; });
  constexpr std::uint64_t count = 10;
  for (std::uint64_t i = 0; i < count; ++i) {
    node(0).module().write(1, window.key, window.address(), contents(i, 1'000'000), i);
  }
  EXPECT_TRUE(node(1).close(0ns));
  node(0).module().write(1, window.key, window.address(), contents(1, 8), count);
  pump([&] { return node(0).recorder().transfers() == count + 1; }, {0});
  EXPECT_EQ(node(0).recorder().lost(1), 0U);
}

}  // namespace
}  // namespace aplib::comm::test
