// SPDX-License-Identifier: MIT
// tcp when the system refuses memory or a place in an epoll. A link may be lost, with its cause, but never the process.
// Functions of this program replace the library's, and refuse memory and epoll_ctl() to one thread at a time.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "tcp_net.hpp"

namespace {

thread_local bool no_memory = false;
thread_local int epoll_error = 0;  // epoll_ctl() fails with this when it adds.

void* allocate(std::size_t bytes) {
  if (no_memory) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
// All forms are replaced, so that no block of AddressSanitizer's own is freed here. They are not inline, because gcc
// would then report free() as the wrong function.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return no_memory ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return no_memory ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

extern "C" __attribute__((visibility("default"))) int epoll_ctl(int epoll, int operation, int descriptor,
                                                                epoll_event* event) noexcept {
  if (epoll_error != 0 && operation == EPOLL_CTL_ADD) {
    errno = epoll_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, descriptor, event));
}

namespace aplib::comm::test {
namespace {

constexpr std::size_t body_bytes = 64;

/// Counts upcalls and keeps the reason.
struct FrameCounter final : Receiver {
  bool wants(Peer) override { return true; }
  void frame(Peer, const Label&, std::span<const std::byte>) override { ++frames; }
  std::byte* large_begin(Peer, const Label&, std::size_t) override { return nullptr; }
  void large_end(Peer, const Label&, std::size_t, bool) override {}
  void peer_lost(Peer, const std::string& reason) override {
    ++lost;
    why = reason;  // short texts need no memory
  }
  std::uint64_t frames = 0;
  std::uint64_t lost = 0;
  std::string why;
};

struct NoMemory {
  NoMemory() { no_memory = true; }
  ~NoMemory() { no_memory = false; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};

/// Two processes.
struct Two {
  explicit Two(TcpNetOptions options = {}) : net(2, std::move(options)) {
    for (Peer peer = 0; peer < 2; ++peer) {
      receivers.push_back(std::make_unique<FrameCounter>());
      modules.push_back(net.module(peer));
      modules.back()->start(*receivers.back());
    }
  }
  void poll() {
    for (const auto& module : modules) module->poll();
  }

  TcpNet net;
  std::vector<std::unique_ptr<FrameCounter>> receivers;
  std::vector<std::unique_ptr<Module>> modules;
};

/// The system refuses something to [0].
class Refused : public testing::Test, protected Two {
 protected:
  bool send(std::uint64_t key) {
    try {
      modules[0]->send(1, {.key = key}, body);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::exhausted);
      return false;
    } catch (const std::bad_alloc&) {
      return false;  // not even for the message
    }
  }

  const std::vector<std::byte> body = std::vector<std::byte>(body_bytes);
};

TEST_F(Refused, MemoryForWhatWaitsToGoOut) {
  std::uint64_t key = 0;
  constexpr int warm = 200;
  for (int i = 0; i < warm; ++i) ASSERT_TRUE(send(key++));
  modules[1]->send(0, {}, body);
  while (receivers[1]->frames < key || receivers[0]->frames == 0) poll();
  std::uint64_t taken = key;
  constexpr int rounds = 2000;
  for (int i = 0; i < rounds; ++i) {
    {
      const NoMemory none;
      for (int burst = 0; burst < 4; ++burst) taken += send(taken) ? 1 : 0;
      modules[0]->flush();
      modules[0]->poll();
    }
    modules[1]->poll();
  }
  EXPECT_GT(taken, key);
  while (receivers[1]->frames < taken) poll();
  EXPECT_EQ(receivers[0]->lost, 0U);
}

TEST_F(Refused, MemoryToLookForAnswers) {
  // Who sends again after a while has the answers looked for, on another thread: that needs none.
  std::chrono::milliseconds timeout(400);
  const auto lost = [&] {
    Two hasty({.peer_timeout = timeout});
    hasty.modules[0]->send(1, {}, body);
    for (std::uint64_t sent = 1; sent < 4 && hasty.receivers[0]->lost == 0; ++sent) {
      while (hasty.receivers[1]->frames < sent && hasty.receivers[0]->lost == 0) hasty.poll();
      std::this_thread::sleep_for(timeout * 5 / 4);  // until nobody looks any more; sooner would prove nothing
      const NoMemory none;
      EXPECT_NO_THROW(hasty.modules[0]->send(1, {}, body));
    }
    return hasty.receivers[0]->why;
  };
  std::string why = lost();
  for (int tries = 0; tries < 2 && !why.empty(); ++tries) {  // a busy computer may be late with a greeting or an answer
    timeout *= 4;
    why = lost();
  }
  EXPECT_EQ(why, "");
}

TEST_F(Refused, MemoryToReceive) {
  ASSERT_TRUE(send(0));
  while (receivers[1]->frames == 0) modules[1]->poll();  // [0] does not know yet that it is connected
  while (receivers[0]->lost == 0) {
    try {
      const NoMemory none;
      modules[0]->poll();
    } catch (const std::bad_alloc&) {
      // the receiver's above keeps the reason
    }
  }
  while (receivers[1]->lost == 0) modules[1]->poll();
}

TEST_F(Refused, MemoryToSayThatThePeerIsGone) {
  ASSERT_TRUE(send(0));
  while (receivers[1]->frames < 1) poll();
  modules[1]->abandon();
  {
    const NoMemory none;
    // Until the system reports that the peer is gone.
    for (std::uint64_t key = 1; key < 20; ++key) {
      (void)send(key);
      modules[0]->flush();
      ::usleep(1000);
    }
  }
  while (receivers[0]->lost == 0) modules[0]->poll();
  EXPECT_NE(receivers[0]->why, "");
}

TEST_F(Refused, APlaceInTheEpoll) {
  for (const int error : {ENOSPC, ENOMEM}) {
    SCOPED_TRACE(error);
    Two other;
    const FrameCounter& mine = *other.receivers[0];
    other.modules[0]->send(1, {}, body);
    while (mine.lost == 0) {
      epoll_error = error;  // for this thread's calls, not for those of the modules
      other.modules[0]->poll();
      epoll_error = 0;
      other.modules[1]->poll();
    }
    EXPECT_EQ(mine.why.find("its connection cannot be watched here: "), 0U) << mine.why;
    while (other.receivers[1]->lost == 0) other.modules[1]->poll();
  }
}

}  // namespace
}  // namespace aplib::comm::test
