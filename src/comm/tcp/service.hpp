// SPDX-License-Identifier: MIT
// Service: the module's own thread. It answers calls, makes those that are asked for, and watches whether the hosts
// to which something is under way still answer. While there is nothing of the kind it sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/module.hpp"
#include "comm/tcp/link.hpp"
#include "comm/tcp/tcp_module.hpp"

namespace aplib::comm::tcp {

class Service {
 public:
  /// The links by peer; that of the process itself is not used. Both outlive the service. Takes the listener out of
  /// the settings. Throws Error.
  Service(Settings& settings, std::span<const std::unique_ptr<Link>> links);
  /// Stops, without waiting for anything: connections in the making end.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Ways on which this process does not wait for a frame to call: makes those calls.
  void begin_calls() noexcept;
  /// The connection to that process is made before anything is sent.
  [[nodiscard]] bool calls_at_once(Peer peer) const noexcept;
  [[nodiscard]] bool is_relayed(Peer peer) const noexcept;
  /// A link is in State::calling. Any thread; needs no memory.
  void call() noexcept;
  /// Something was sent: from here on the service looks for answers. Any thread; one load while it looks already; needs
  /// no memory.
  void sent() noexcept {
    if (!looking_.load(std::memory_order_relaxed)) begin_looking();
  }
  /// Stops the thread. Connections in the making end, and nothing is told to their links. No thread may be in
  /// another call.
  void stop();

  /// Connections that were dropped. Any thread.
  [[nodiscard]] std::uint64_t refused() const noexcept;

 private:
  struct Impl;
  void begin_looking() noexcept;

  std::atomic<bool> looking_ = false;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::comm::tcp
