// SPDX-License-Identifier: MIT
#include "comm/loop/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace aplib::comm {

// The default order everywhere: either the ringer sees the sleeper in sleepers_, or the sleeper, which counted itself first, sees the ring in rings_ and does not sleep.
// The system calls stand here because the library does not show its own (base/os/futex.hpp) to programs that link modules.

void Doorbell::ring() noexcept {
  rings_.fetch_add(1);
  Bell* const bell = bell_.load();
  if (bell != nullptr && bell->anyone()) bell->ring();
  if (sleepers_.load() == 0) return;
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::call() noexcept {
  called_.store(true);
  ring();
}

std::optional<std::uint32_t> Doorbell::ticket() noexcept {
  const std::uint32_t drawn = rings_.load();
  if (called_.exchange(false)) return std::nullopt;
  return drawn;
}

void Doorbell::sleep(std::uint32_t ticket, std::optional<std::chrono::nanoseconds> timeout) noexcept {
  timespec time{};
  if (timeout) {
    const auto left = std::max<std::int64_t>(timeout->count(), 0);
    time.tv_sec = left / 1'000'000'000;
    time.tv_nsec = left % 1'000'000'000;
  }
  sleepers_.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), FUTEX_WAIT_PRIVATE, ticket, timeout ? &time : nullptr,
          nullptr, 0);
  sleepers_.fetch_sub(1);
  // A call that ended this sleep is answered: the next one need not end for it, too.
  called_.exchange(false);
}

int Doorbell::descriptor() noexcept {
  try {
    std::call_once(made_, [this] {
      made_bell_ = std::make_unique<Bell>();
      bell_.store(made_bell_.get());
    });
  } catch (...) {
    return -1;
  }
  return made_bell_->descriptor();
}

bool Doorbell::arm() noexcept {
  if (descriptor() < 0) return false;
  made_bell_->begin();
  return !called_.load();
}

void Doorbell::disarm() noexcept {
  Bell* const bell = bell_.load();
  if (bell == nullptr) return;
  bell->end();
  if (!bell->anyone()) called_.store(false);
}

}  // namespace aplib::comm
