// SPDX-License-Identifier: MIT
// Both sides copy one message: every byte once, in every order of events.
#include "cell/copy.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "det/explore.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

std::vector<char> pattern(std::size_t bytes) {
  std::vector<char> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<char>(i * 31 + i / 4096);
  return values;
}

// copy_long() goes other ways where source and destination lie in a certain way in their pages.
TEST(CopyLong, CopiesEveryByteAndNoOtherFromAnywhereToAnywhere) {
  constexpr std::size_t page = 4096;
  constexpr char untouched = 0x5a;
  for (const std::size_t bytes : {41U, 2048U, 2049U, 4096U, 4097U, 6145U, 100'000U}) {
    const std::vector<char> from = pattern(bytes + page);
    for (const std::size_t source : {0, 1, 8, 1000}) {
      for (const std::size_t behind : {0, 1, 8, 16, 31, 32, 33, 64, 4080}) {
        std::vector<char> to(bytes + 3 * page, untouched);
        const std::size_t from_page = reinterpret_cast<std::uintptr_t>(from.data() + source) % page;
        const std::size_t to_page = reinterpret_cast<std::uintptr_t>(to.data() + page) % page;
        const std::size_t at = page + (from_page + behind + page - to_page) % page;
        copy_long(to.data() + at, from.data() + source, bytes);
        ASSERT_EQ(std::memcmp(to.data() + at, from.data() + source, bytes), 0)
            << bytes << " " << source << " " << behind;
        to.erase(to.begin() + static_cast<std::ptrdiff_t>(at), to.begin() + static_cast<std::ptrdiff_t>(at + bytes));
        ASSERT_EQ(std::count(to.begin(), to.end(), untouched), std::ssize(to))
            << bytes << " " << source << " " << behind;
      }
    }
  }
}

TEST(Transfer, CopiesEveryByteFromBothEnds) {
  for (const std::size_t bytes : {std::size_t{32'768}, std::size_t{32'769}, std::size_t{100'001}, std::size_t{1} << 20U,
                                  (std::size_t{1} << 20U) + 1, std::size_t{5'000'003}}) {
    const std::vector<char> from = pattern(bytes);
    for (std::uint64_t round = 0; round < testing_support::scaled(20, 4, 1); ++round) {
      std::vector<char> to(bytes, 0);
      Transfer<> transfer;
      std::atomic<bool> published{false};
      std::thread receiver([&] {
        while (!published.load(std::memory_order_acquire)) std::this_thread::yield();
        transfer.copy_from_back();
        EXPECT_EQ(std::memcmp(from.data(), to.data(), bytes), 0);
      });
      transfer.begin(to.data(), from.data(), bytes);
      published.store(true, std::memory_order_release);
      transfer.copy_from_front();
      receiver.join();
      ASSERT_EQ(std::memcmp(from.data(), to.data(), bytes), 0) << bytes;
    }
  }
}

// The receiver posts the next receive in the same place as soon as a message is complete. The sender of the last
// message may still be leaving it, and must not touch what is then another sender's.
TEST(Transfer, TheNextMessageInTheSamePlaceIsUntouchedByTheLastSender) {
  constexpr std::size_t bytes = 256 * 1024;
  const int rounds = static_cast<int>(testing_support::scaled(3000, 10));
  const std::vector<char> from = pattern(bytes);
  std::vector<char> to(bytes);
  Transfer<> transfer;
  // Whose turn it is. 0: the receiver prepares. 1 or 2: that sender begins and publishes. 3: the receiver copies.
  std::atomic<int> turn{0};
  std::atomic<int> wrong{0};
  const auto sender = [&](int self) {
    for (int round = self; round < rounds; round += 2) {
      while (turn.load(std::memory_order_acquire) != 1 + self) std::this_thread::yield();
      transfer.begin(to.data(), from.data(), bytes);
      turn.store(3, std::memory_order_release);
      transfer.copy_from_front();
    }
  };
  std::thread first(sender, 0);
  std::thread second(sender, 1);
  for (int round = 0; round < rounds; ++round) {
    std::fill(to.begin(), to.end(), 0);
    turn.store(1 + round % 2, std::memory_order_release);
    while (turn.load(std::memory_order_acquire) != 3) std::this_thread::yield();
    transfer.copy_from_back();
    if (std::memcmp(from.data(), to.data(), bytes) != 0) ++wrong;
  }
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0);
}

// A side that waits for a core that it occupies itself would wait for the end of its time slice, some milliseconds each
// time.
TEST(Transfer, TwoSidesOnOneCoreDoNotWaitForEachOthersTimeSlices) {
  constexpr std::size_t bytes = 40'000;
  constexpr int rounds = 300;
  const std::vector<char> from = pattern(bytes);
  std::vector<char> to(bytes);
  Transfer<> transfer;
  std::atomic<int> turn{0};
  const int core = sched_getcpu();
  const auto on_one_core = [core] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(core), &one);
    static_cast<void>(sched_setaffinity(0, sizeof one, &one));
  };
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double start = cpu_seconds();
  std::thread sender([&] {
    on_one_core();
    for (int round = 0; round < rounds; ++round) {
      while (turn.load(std::memory_order_acquire) != 2 * round) std::this_thread::yield();
      transfer.begin(to.data(), from.data(), bytes);
      turn.store(2 * round + 1, std::memory_order_release);
      transfer.copy_from_front();
    }
  });
  std::thread receiver([&] {
    on_one_core();
    for (int round = 0; round < rounds; ++round) {
      while (turn.load(std::memory_order_acquire) != 2 * round + 1) std::this_thread::yield();
      transfer.copy_from_back();
      turn.store(2 * round + 2, std::memory_order_release);
    }
  });
  sender.join();
  receiver.join();
  EXPECT_LT(cpu_seconds() - start, testing_support::sanitized ? 3.0 : 0.3) << "for " << rounds << " messages";
}

// The same under the deterministic scheduler: two senders in turn, one receiver, one place. Messages 1 and 2 are
// redirected there at some time of their senders' copies.
struct TransferScenario {
  static constexpr int thread_count = 3;
  static constexpr int receiver = 2;
  static constexpr int message_count = 4;
  static constexpr std::size_t bytes = 3 * Transfer<>::chunk_bytes_min + 100;

  void thread(int self) {
    if (self == receiver) {
      for (int i = 0; i < message_count; ++i) {
        std::memset(to, 0, bytes);
        turn.store(2 * i + 1, std::memory_order_release);
        while (turn.load(std::memory_order_acquire) != 2 * i + 2) det::yield();
        if (is_redirected(i)) {
          transfer.copy_from_back_to(to);
        } else {
          transfer.copy_from_back();
        }
        bool whole = true;
        for (std::size_t b = 0; b < bytes; b += 512) whole = whole && to[b] == from[i][b];
        det::check(whole && to[bytes - 1] == from[i][bytes - 1], "the message is whole");
      }
      return;
    }
    for (int i = self; i < message_count; i += 2) {
      std::memset(from[i], i + 1, bytes);
      while (turn.load(std::memory_order_acquire) != 2 * i + 1) det::yield();
      transfer.begin(is_redirected(i) ? aside : to, from[i], bytes);
      turn.store(2 * i + 2, std::memory_order_release);
      transfer.copy_from_front();
    }
  }
  static bool is_redirected(int message) { return message == 1 || message == 2; }

  Transfer<det::DetAtomic> transfer;
  det::DetAtomic<int> turn{0};
  char to[bytes];
  char aside[bytes];
  char from[message_count][bytes];
};

TEST(Transfer, OnePlaceServesSendersByTurnsUnderEverySeed) {
  for (const det::Memory memory : {det::Memory::interleaving, det::Memory::weak}) {
    const det::Outcome outcome = det::explore<TransferScenario>(400, {.memory = memory});
    EXPECT_TRUE(outcome.ok) << outcome.failure;
  }
}

}  // namespace
}  // namespace aplib
