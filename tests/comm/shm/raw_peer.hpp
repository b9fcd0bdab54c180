// SPDX-License-Identifier: MIT
// RawPeer: a process of the machine that follows the protocol only as far as a test wants.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/shm/presence.hpp"
#include "shm_net.hpp"

namespace aplib::comm::test {

/// A socket that has called there; not blocking.
[[nodiscard]] os::UniqueFd connect_to(const shm::Endpoint& endpoint);

class RawPeer {
 public:
  /// Not connected yet.
  RawPeer(const JobKey& key, Peer self) : key_(key), self_(self) {}

  /// Connects to `whom` and greets it. Whether it was greeted back.
  bool greet(const shm::Endpoint& whom, Peer peer, const std::string& machine = "machine-of-the-test");
  /// Takes the other side's segment. Blocks.
  bool take();
  /// Gives a valid segment.
  bool give();
  /// Gives other bytes and descriptors instead.
  bool give(std::span<const std::byte> bytes, const std::vector<int>& descriptors);
  /// greet(), take() and give().
  bool join(const shm::Endpoint& whom, Peer peer) { return greet(whom, peer) && take() && give(); }
  /// Waits until the other side has ended the connection.
  bool sees_the_end() const;

  /// The segment that we write, which nobody checks.
  [[nodiscard]] shm::Segment& segment() { return *static_cast<shm::Segment*>(connection_.mine.data()); }
  [[nodiscard]] shm::ControlBlock& block() { return bell_.block(); }
  /// Publishes entry number `position`.
  void put(std::uint32_t position, std::uint32_t what, std::span<const std::byte> body = {});

  shm::Bell& bell() { return bell_; }
  [[nodiscard]] int socket() const { return connection_.socket.get(); }

 private:
  JobKey key_;
  Peer self_;
  shm::Bell bell_;
  shm::Connection connection_;
};

}  // namespace aplib::comm::test
