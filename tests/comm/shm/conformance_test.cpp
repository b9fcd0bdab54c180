// SPDX-License-Identifier: MIT
// The promises of every module, kept by shm.
#include "conformance.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <span>
#include <thread>

#include "shm_net.hpp"

namespace aplib::comm::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         testing::Values(Subject{
                             "auth", [](std::uint32_t processes) { return std::make_unique<ShmNet>(processes); }}),
                         subject_name);

/// Only the greeting differs.
TEST(ShmSecure, FramesGoWithEach) {
  for (const Secure secure : {Secure::off, Secure::tls}) {
    ShmNet net(2, secure);
    Node one(net, 0, 2);
    Node other(net, 1, 2);
    one.send(1, 100);
    other.send(0, 50'000);
    while (one.recorder().frames() == 0 || other.recorder().frames() == 0) {
      one.poll();
      other.poll();
    }
    one.destroy();
    other.destroy();
  }
}

/// Memory whose last page cannot be read before `may_be_read` is called, by who tries.
class LateMemory {
 public:
  LateMemory(std::size_t bytes, bool (*may_be_read)()) {
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    bytes_ = (bytes + page - 1) / page * page;
    first_ =
        static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    last_page = first_ + bytes_ - page;
    page_bytes = page;
    ask = may_be_read;
    struct sigaction action {};
    action.sa_handler = [](int) {
      waited_well = ask();
      ::mprotect(last_page, page_bytes, PROT_READ | PROT_WRITE);
    };
    ::sigaction(SIGSEGV, &action, &before_);
  }
  LateMemory(const LateMemory&) = delete;
  LateMemory& operator=(const LateMemory&) = delete;
  ~LateMemory() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(first_, bytes_);
  }
  void fill(std::span<const std::byte> with) {
    std::ranges::copy(with, first_);
    ::mprotect(last_page, page_bytes, PROT_NONE);
  }
  [[nodiscard]] std::span<const std::byte> first(std::size_t bytes) const { return {first_, bytes}; }

  static inline bool waited_well = false;

 private:
  static inline std::byte* last_page = nullptr;
  static inline std::size_t page_bytes = 0;
  static inline bool (*ask)() = nullptr;
  std::byte* first_ = nullptr;
  std::size_t bytes_ = 0;
  struct sigaction before_ {};
};

// The peers join while a thread copies a body that is sent before: that may take longer than a peer waits.
TEST(ShmCalls, AreAnsweredWhileALargeBodyIsCopied) {
  static std::atomic<bool> has_joined;
  has_joined = false;
  constexpr std::size_t bytes = 1 << 20;
  ShmNet net(2);
  Node one(net, 0, 2);
  Node other(net, 1, 2);
  LateMemory body(bytes, [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!has_joined && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return has_joined.load();
  });
  body.fill(contents(0, bytes));
  std::jthread peer([&] {
    other.send(0, 100);
    while (other.module().queued(0) != 0) other.poll();
    has_joined = true;
  });
  one.send_from(1, body.first(bytes));
  peer.join();
  EXPECT_TRUE(LateMemory::waited_well);
  while (one.recorder().frames() == 0 || other.recorder().frames() == 0) {
    one.poll();
    other.poll();
  }
  one.destroy();
  other.destroy();
}

TEST(ShmCalls, OfTwoThatCrossNoneIsAStranger) {
  for (int round = 0; round < 50; ++round) {
    ShmNet net(2);
    Node one(net, 0, 2);
    Node other(net, 1, 2);
    other.send(0, 100);
    one.send(1, 100);
    while (one.recorder().frames() == 0 || other.recorder().frames() == 0) {
      one.poll();
      other.poll();
    }
    EXPECT_EQ(one.module().traffic().refused + other.module().traffic().refused, 0U);
    one.destroy();
    other.destroy();
  }
}

}  // namespace
}  // namespace aplib::comm::test
