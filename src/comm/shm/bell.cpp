// SPDX-License-Identifier: MIT
#include "comm/shm/bell.hpp"

#include <fmt/format.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>

#include "aplib/error.hpp"

namespace aplib::comm::shm {
namespace {

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

void write_one(int descriptor) noexcept {
  const int error = errno;
  constexpr std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor, &one, sizeof one);  // fails only when it rings already
  errno = error;
}

bool rings(int descriptor) noexcept {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

void silence(int descriptor) noexcept {
  std::uint64_t count = 0;
  iovec into{&count, sizeof count};
  // Never blocks, even if a peer, which holds the same open file, has asked the system for that.
  if (::preadv2(descriptor, &into, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN || !rings(descriptor)) return;
  [[maybe_unused]] const ssize_t read = ::read(descriptor, &count, sizeof count);
}

}  // namespace

Bell::Bell()
    : has_barrier_(membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)),
      descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      board_(SharedMemory::make(sizeof(Board))) {
  if (descriptor_) return;
  throw Error(Errc::exhausted,
              fmt::format("shm: cannot make the descriptor it waits on: {}; raise the limit of open files (ulimit -n)",
                          std::generic_category().message(errno)));
}

void Bell::arm() noexcept {
  std::atomic<std::uint32_t>& asleep = board().asleep;
  {
    const std::lock_guard hold(mutex_);
    // Also for the second sleeper another number: the first may have been rung for already.
    const std::uint32_t now = asleep.load(std::memory_order_relaxed);  // relaxed: under the mutex
    asleep.store(++armed_ == 1 ? now + 1 : now + 2, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // own store before own look
  if (has_barrier_) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

void Bell::disarm() noexcept {
  const std::lock_guard hold(mutex_);
  if (--armed_ != 0) return;
  std::atomic<std::uint32_t>& asleep = board().asleep;
  asleep.store(asleep.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // relaxed: a ring too many
  // It rings until all who slept have heard it. What rings now was for a sleeper that is awake.
  silence(descriptor_.get());
}

void Bell::sleep(std::optional<std::chrono::nanoseconds> timeout) const noexcept {
  timespec time{};
  if (timeout) {
    const auto count = std::max<std::chrono::nanoseconds::rep>(timeout->count(), 0);
    constexpr long per_second = 1'000'000'000;
    time.tv_sec = count / per_second;
    time.tv_nsec = count % per_second;
  }
  pollfd one{descriptor_.get(), POLLIN, 0};
  ::ppoll(&one, 1, timeout ? &time : nullptr, nullptr);
}

void Bell::ring() noexcept { write_one(descriptor_.get()); }

void Bell::ring_if_armed() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // what was made before the look; pairs with arm()
  if ((board().asleep.load(std::memory_order_relaxed) & 1U) != 0) ring();
}

void PeerBell::ring(std::uint32_t asleep) noexcept {
  if (rung_.exchange(asleep, std::memory_order_relaxed) == asleep) return;  // relaxed: two rings do no harm
  rings_.fetch_add(1, std::memory_order_relaxed);
  write_one(descriptor_.get());
}

}  // namespace aplib::comm::shm
