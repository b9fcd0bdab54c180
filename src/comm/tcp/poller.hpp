// SPDX-License-Identifier: MIT
// Poller: what a TcpModule sleeps on: one epoll of all connections, a bell for wake(), and a bell with a list for what
// happened besides the sockets' readiness. And the list of links that have something to write.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "base/os/descriptor.hpp"
#include "comm/bell.hpp"
#include "comm/link.hpp"

namespace aplib::comm::tcp {

class Link;

/// Thread safety: all functions, any thread.
class Poller {
 public:
  /// Throws Error(exhausted) when there are no descriptors left.
  Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Which events of a socket count, instead of `before`. 0: none. `link` comes back from ready(). False: the
  /// system cannot; errno says why.
  [[nodiscard]] bool watch(int socket, Link* link, std::uint32_t before, std::uint32_t now) noexcept;

  /// The links whose sockets are ready, without waiting; one may be there several times. Returns how many of
  /// `links` were filled.
  [[nodiscard]] std::size_t ready(std::span<Link*> links) noexcept;

  void wait(std::optional<std::chrono::nanoseconds> timeout) noexcept;
  /// Async-signal-safe.
  void wake() noexcept { wake_.ring(); }
  /// The epoll. Sleepers of others than wait() begin and end their sleep.
  [[nodiscard]] int descriptor() const noexcept { return epoll_.get(); }
  void begin_sleep() noexcept { wake_.begin(); }
  void end_sleep() noexcept { wake_.end(); }

  /// What links tell; ring() behind each.
  [[nodiscard]] LinkReports& reports() noexcept { return reports_; }
  void ring() noexcept {
    report_.signal();
    // Behind the signal, so that whatever has signalled is silenced, now or by the next poll. release: the reports
    // are seen.
    rung_.store(true, std::memory_order_release);
  }
  /// The reports are to be taken; the descriptor tells of them no more.
  [[nodiscard]] bool hear() noexcept {
    if (!rung_.load(std::memory_order_acquire)) return false;  // pairs with ring()
    rung_.store(false, std::memory_order_relaxed);             // relaxed: what rings from here on signals again
    report_.clear();
    return true;
  }

  /// Links with something to write; a link is there once: it remembers. Needs no memory.
  void add_writer(Link* link) noexcept;
  [[nodiscard]] std::uint32_t writers() const noexcept { return writer_count_.load(std::memory_order_acquire); }
  /// The one that is there for longest; null: none.
  [[nodiscard]] Link* take_writer() noexcept;

 private:
  os::UniqueFd epoll_;
  os::EventFd report_;
  Bell wake_;
  LinkReports reports_;
  std::atomic<bool> rung_ = false;
  std::atomic<std::uint32_t> writer_count_ = 0;
  std::mutex lock_;
  Link* first_writer_ = nullptr;
  Link* last_writer_ = nullptr;
};

}  // namespace aplib::comm::tcp
