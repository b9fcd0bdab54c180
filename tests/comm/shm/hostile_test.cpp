// SPDX-License-Identifier: MIT
// A peer that writes invalid data ends its connection, with a reason, and affects no other. A stranger ends nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <random>
#include <thread>

#include "raw_peer.hpp"

namespace aplib::comm::test {
namespace {

using shm::EntryKind;

std::uint32_t what(EntryKind kind, std::uint32_t bytes) { return static_cast<std::uint32_t>(kind) << 24U | bytes; }
std::span<const std::byte> bytes_of(const std::uint64_t& number) { return std::as_bytes(std::span(&number, 1)); }

/// Process 0 is the victim, 1 misbehaves, and 2 is a bystander.
class Hostile : public ::testing::Test {
 protected:
  void TearDown() override {
    victim_.destroy();
    bystander_.destroy();
  }
  template <class Done>
  void pump(Done done) {
    while (!done()) {
      if (!victim_.poll() && !bystander_.poll()) std::this_thread::yield();
    }
  }
  void join() {
    // The module's thread answers the connection, poll() the rest.
    ASSERT_TRUE(raw_.join(net_.endpoint(0), 0));
    pump([&] { return victim_.module().describe(1) == "shm, joined, auth"; });
  }
  /// The victim loses process 1 for this reason; process 2 goes on.
  void expect_lost(const std::string& reason) {
    pump([&] { return victim_.recorder().lost(1) == 1; });
    EXPECT_NE(victim_.recorder().why(1).find(reason), std::string::npos) << victim_.recorder().why(1);
    expect_well();
  }
  void expect_well() {
    const std::uint64_t sent = ++sent_;
    victim_.send(2, 100);
    bystander_.send(0, 100);
    pump([&] { return bystander_.recorder().frames(0) == sent && victim_.recorder().frames(2) == sent; });
  }

  std::uint64_t sent_ = 0;
  ShmNet net_{3};
  RawPeer raw_{net_.key(), 1};
  Node victim_{net_, 0, 3};
  Node bystander_{net_, 2, 3};
};

TEST_F(Hostile, EntriesThatMakeNoSense) {
  join();
  raw_.put(0, 0x7700'0000);
  pump([&] { return victim_.recorder().lost(1) == 1; });
  EXPECT_NE(victim_.recorder().why(1).find("nonsense"), std::string::npos) << victim_.recorder().why(1);
  EXPECT_TRUE(raw_.sees_the_end());
}

TEST_F(Hostile, AFrameThatIsTooLongForOne) {
  join();
  raw_.put(0, what(EntryKind::frame, Module::large_from_bytes));
  pump([&] { return victim_.recorder().lost(1) == 1; });
  EXPECT_NE(victim_.recorder().why(1).find("nonsense"), std::string::npos) << victim_.recorder().why(1);
}

TEST_F(Hostile, APieceOutsideALargeFrame) {
  join();
  raw_.put(0, what(EntryKind::piece, 10));
  pump([&] { return victim_.recorder().lost(1) == 1; });
}

TEST_F(Hostile, LengthsOfLargeFramesThatCannotBe) {
  join();
  raw_.put(0, what(EntryKind::large, 8), bytes_of(Module::body_bytes_max + 1));
  pump([&] { return victim_.recorder().lost(1) == 1; });
  EXPECT_EQ(victim_.recorder().large_begun(1), 0U);
}

TEST_F(Hostile, AShortLargeFrame) {
  join();
  raw_.put(0, what(EntryKind::large, 8), bytes_of(100));
  pump([&] { return victim_.recorder().lost(1) == 1; });
  EXPECT_EQ(victim_.recorder().large_begun(1), 0U);
}

TEST_F(Hostile, MorePiecesThanTheFrameHas) {
  join();
  raw_.put(0, what(EntryKind::large, 8), bytes_of(Module::large_from_bytes));
  raw_.put(1, what(EntryKind::piece, Module::large_from_bytes - 4));
  raw_.put(2, what(EntryKind::piece, 8));
  pump([&] { return victim_.recorder().lost(1) == 1; });
  EXPECT_EQ(victim_.recorder().large_broken(1), 1U);
}

TEST_F(Hostile, APieceThatIsLongerThanAny) {
  join();
  raw_.put(0, what(EntryKind::large, 8), bytes_of(std::uint64_t{1} << 24U));
  raw_.put(1, what(EntryKind::piece, 0xff'ffff));
  pump([&] { return victim_.recorder().lost(1) == 1; });
  EXPECT_EQ(victim_.recorder().large_broken(1), 1U);
}

TEST_F(Hostile, TheEndInTheMiddleOfAFrame) {
  join();
  raw_.put(0, what(EntryKind::large, 8), bytes_of(1'000'000));
  raw_.put(1, what(EntryKind::end, 0));
  pump([&] { return victim_.recorder().lost(1) == 1; });
  EXPECT_EQ(victim_.recorder().large_broken(1), 1U);
}

TEST_F(Hostile, TakesMoreThanThereIs) {
  join();
  raw_.segment().taken.store(100'000);
  // Nobody reads before the segment is full.
  for (int i = 0; i < 1'000 && victim_.recorder().lost(1) == 0; ++i) {
    victim_.module().send(1, {}, contents(1, 10));
    victim_.poll();
  }
  expect_lost("nonsense");
}

TEST_F(Hostile, ScribblesAtRandom) {
  join();
  std::mt19937_64 random(7);
  shm::Segment& segment = raw_.segment();
  victim_.recorder().want(1, false);  // its frames belong to no stream of the test
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t number = random();
    switch (number % 4) {
      case 0:
        segment.taken.store(random() >> random() % 64);
        break;
      case 1:
        segment.wants_room.store(static_cast<std::uint32_t>(random() % 2));
        break;
      case 2:
        raw_.block().asleep.store(static_cast<std::uint32_t>(random()));
        break;
      default:
        segment.entries[random() % shm::entry_count].turn.store(static_cast<std::uint32_t>(random() % 600));
        break;
    }
    victim_.module().send(1, {}, contents(1, i % 100 == 0 ? 40'000 : 10));
    if (i % 16 == 0) victim_.poll();
  }
  expect_well();
}

TEST_F(Hostile, WritesWhileItIsRead) {
  // Lengths and kinds change all the time. The victim keeps to the values that it read first.
  join();
  std::atomic<bool> over{false};
  std::thread scribbler([&] {
    std::mt19937_64 random(11);
    while (!over.load()) {
      for (std::uint32_t position = 0; position < shm::entry_count; ++position) {
        shm::Entry& entry = raw_.segment().entries[position];
        const std::uint64_t number = random();
        // Half of it is valid, so that it goes on for a while.
        const std::uint32_t body = (number >> 8U) % 2 == 0 ? 0 : static_cast<std::uint32_t>(number >> 32U) % 40'000;
        reinterpret_cast<std::atomic<std::uint32_t>&>(entry.what)
            .store(what(number % 8 == 0 ? EntryKind::large : EntryKind::piece, number % 8 == 0 ? 8 : body),
                   std::memory_order_relaxed);
        const std::uint64_t length = Module::large_from_bytes + (number >> 16U) % 100'000;
        reinterpret_cast<std::atomic<std::uint64_t>&>(entry.body).store(length, std::memory_order_relaxed);
        entry.turn.store(position + 1, std::memory_order_release);
      }
    }
  });
  pump([&] { return victim_.recorder().lost(1) == 1; });
  over.store(true);
  scribbler.join();
}

TEST_F(Hostile, SharedMemoryThatCanBeShortened) {
  // Reading there would eventually end the process.
  ASSERT_TRUE(raw_.greet(net_.endpoint(0), 0) && raw_.take());
  const os::UniqueFd plain(::memfd_create("plain", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(plain.get(), sizeof(shm::Segment)), 0);
  struct {
    std::uint32_t magic = 0x6d687361;
    std::uint8_t bytes[4] = {1, 1, 0, 0};
    std::uint32_t segment_bytes = sizeof(shm::Segment);
    std::uint32_t block_bytes = sizeof(shm::ControlBlock);
  } paper;
  ASSERT_TRUE(raw_.give(std::as_bytes(std::span(&paper, 1)),
                        {plain.get(), raw_.bell().block_memory().descriptor(), raw_.bell().descriptor()}));
  expect_lost("sealed");
}

TEST_F(Hostile, ABellThatIsNone) {
  ASSERT_TRUE(raw_.greet(net_.endpoint(0), 0) && raw_.take());
  struct {
    std::uint32_t magic = 0x6d687361;
    std::uint8_t bytes[4] = {1, 1, 0, 0};
    std::uint32_t segment_bytes = sizeof(shm::Segment);
    std::uint32_t block_bytes = sizeof(shm::ControlBlock);
  } paper;
  const int block = raw_.bell().block_memory().descriptor();
  ASSERT_TRUE(raw_.give(std::as_bytes(std::span(&paper, 1)), {block, block, block}));
  expect_lost("bell");
}

TEST_F(Hostile, HandsOverNothing) {
  ASSERT_TRUE(raw_.greet(net_.endpoint(0), 0) && raw_.take());
  const std::array<std::byte, 16> nonsense{};
  ASSERT_TRUE(raw_.give(nonsense, {}));
  expect_lost("protocol");
}

TEST_F(Hostile, OneThatIsOutOfDescriptorsHasNotEnded) {
  ASSERT_TRUE(raw_.greet(net_.endpoint(0), 0) && raw_.take());
  ASSERT_TRUE(shm::give(raw_.socket(), shm::Verdict::unable, nullptr, raw_.bell()));
  expect_lost("no descriptor or memory is left there");
}

TEST_F(Hostile, SpeaksWhereNothingIsSaidAnyMore) {
  join();
  const std::array<std::byte, 4> words{};
  ASSERT_EQ(::send(raw_.socket(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
  expect_lost("does not follow the protocol");
}

TEST_F(Hostile, EndsInTheMiddleOfTheHandover) {
  ASSERT_TRUE(raw_.greet(net_.endpoint(0), 0) && raw_.take());
  ::shutdown(raw_.socket(), SHUT_RDWR);
  expect_lost("ended");
}

TEST_F(Hostile, AnotherKeyIsAStranger) {
  RawPeer stranger(JobKey::make(), 1);
  EXPECT_FALSE(stranger.greet(net_.endpoint(0), 0));
  expect_well();
  EXPECT_EQ(victim_.module().traffic().refused, 1U);
  EXPECT_EQ(victim_.recorder().lost(1), 0U);
}

TEST_F(Hostile, AnotherMachineIsRefused) {
  EXPECT_FALSE(raw_.greet(net_.endpoint(0), 0, "another machine") && raw_.take());
  expect_well();
  EXPECT_EQ(victim_.recorder().lost(1), 0U);
}

TEST_F(Hostile, GarbageAndSilence) {
  std::vector<os::UniqueFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect_to(net_.endpoint(0)));
  for (int i = 0; i < 50; ++i) {
    const os::UniqueFd socket = connect_to(net_.endpoint(0));
    const std::array<std::byte, 64> garbage{std::byte{0x47}};
    [[maybe_unused]] const ssize_t sent = ::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  expect_well();
}

}  // namespace
}  // namespace aplib::comm::test
