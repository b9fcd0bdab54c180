// SPDX-License-Identifier: MIT
// Service: the module's own thread. It answers calls, makes those that are asked for, and hears when a peer ends.
// It sleeps while there is nothing of the kind.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/module.hpp"
#include "comm/shm/link.hpp"
#include "comm/shm/shm_module.hpp"

namespace aplib::comm::shm {

class Service {
 public:
  /// The links by peer; null: that process is not reached by this module. They, settings and bell outlive the
  /// service, which takes the listener out of the settings. Throws Error.
  Service(Settings& settings, const Bell& bell, std::span<const std::unique_ptr<Link>> links);
  /// Stops, without waiting for anything: connections in the making end.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// A link is in State::calling. Any thread; needs no memory.
  void call() noexcept;
  /// Stops the thread. No thread may be in another call.
  void stop();

  /// Connections that were dropped. Any thread.
  [[nodiscard]] std::uint64_t refused() const noexcept;
  [[nodiscard]] std::uint64_t system_calls() const noexcept { return system_calls_.load(std::memory_order_relaxed); }

 private:
  struct Impl;
  std::atomic<std::uint64_t> system_calls_{0};
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::comm::shm
