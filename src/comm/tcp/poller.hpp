// SPDX-License-Identifier: MIT
// Poller: what a TcpModule sleeps on: one epoll of all connections, a bell for wake(), and a bell with a list for what happened besides the sockets' readiness. And the list of links that have
// something to write.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/bell.hpp"

namespace aplib::comm::tcp {

class Link;

/// Thread safety: all functions, any thread.
class Poller {
 public:
  /// Something for the polling thread: the link is connected (no text), or lost for this reason.
  struct Event {
    Link* link;
    std::optional<std::string> lost;
  };

  /// Throws Error(exhausted) when there are no descriptors left.
  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Which events of a socket count, instead of `before`. 0: none. `link` comes back from ready().
  void watch(int socket, Link* link, std::uint32_t before, std::uint32_t now) noexcept;

  /// The links whose sockets are ready, without waiting; one may be there several times. Returns how many of `links` were filled.
  [[nodiscard]] std::size_t ready(std::span<Link*> links) noexcept;

  void wait(std::optional<std::chrono::nanoseconds> timeout) noexcept;
  /// Async-signal-safe.
  void wake() noexcept { wake_.ring(); }
  /// The epoll. Sleepers of others than wait() begin and end their sleep.
  [[nodiscard]] int descriptor() const noexcept { return epoll_; }
  void begin_sleep() noexcept { wake_.begin(); }
  void end_sleep() noexcept { wake_.end(); }

  void report(Event event);
  [[nodiscard]] bool anything_reported() const noexcept { return reported_.load(std::memory_order_acquire); }
  [[nodiscard]] std::vector<Event> take_reports();

  /// Links with something to write. A link is there once: it remembers.
  void add_writer(Link* link);
  [[nodiscard]] bool any_writer() const noexcept { return writer_count_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] std::vector<Link*> take_writers();

 private:
  int epoll_;
  int report_;
  Bell wake_;
  std::atomic<bool> reported_ = false;
  std::atomic<std::uint32_t> writer_count_ = 0;
  std::mutex lock_;
  std::vector<Event> reports_;
  std::vector<Link*> writers_;
};

}  // namespace aplib::comm::tcp
